{{/* Prints the kinds that this release installs and those that it leaves out, as JSON: {"on": {CRD: kind}, "off": [plural]}.
     A kind with the value auto is left out if the cluster's CRD of this name is not Poolhouse's or is managed by KubeVirt. */}}
{{- define "poolhouse.kinds" -}}
{{- $on := dict -}}{{- $off := list -}}
{{- range $name, $kind := .Files.Get "generated/kinds.yaml" | fromYaml -}}
  {{- $wanted := toString (get $.Values.kinds $kind.plural | default (ternary "false" "auto" (eq (toString (get $.Values.kinds $kind.plural)) "false"))) -}}
  {{- if and (eq $wanted "auto") $kind.yieldsToKubeVirt -}}
    {{- with lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $name -}}
      {{- $labels := .metadata.labels | default dict -}}
      {{- $ours := eq (get $labels "app.kubernetes.io/part-of") "poolhouse" -}}
      {{- $theirs := has (get $labels "app.kubernetes.io/managed-by") (list "virt-operator" "kubevirt-operator") -}}
      {{- if or $theirs (not $ours) -}}{{- $wanted = "false" -}}{{- end -}}
    {{- end -}}
  {{- end -}}
  {{- if eq $wanted "false" -}}
    {{- $off = append $off $kind.plural -}}
  {{- else -}}
    {{- $_ := set $on $name $kind -}}
  {{- end -}}
{{- end -}}
{{ dict "on" $on "off" $off | toJson }}
{{- end }}
