{{/* The kinds that this release installs, as JSON: {"on": {CRD: kind}, "off": [plural]}. A kind that KubeVirt has too is
     left alone where the CRD in the cluster is not ours, or has become KubeVirt's. */}}
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

{{/* (root, rules): those that are not about a kind that is off, as a YAML list */}}
{{- define "poolhouse.rules" -}}
{{- $root := index . 0 -}}
{{- $off := list -}}
{{- $kinds := include "poolhouse.kinds" $root | fromJson -}}
{{- range $name, $kind := $root.Files.Get "generated/kinds.yaml" | fromYaml -}}
  {{- if has $kind.plural $kinds.off -}}{{- $off = append $off $name -}}{{- end -}}
{{- end -}}
{{- $serving := include "poolhouse.serving" $root -}}
{{- $rules := list -}}
{{- range $rule := index . 1 -}}
  {{- $name := printf "%s.%s" (first $rule.resources | splitList "/" | first) (first $rule.apiGroups) -}}
  {{- if not (has $name $off) -}}
    {{- if and (eq (toJson $rule.resources) "[\"secrets\"]") $rule.resourceNames -}}
      {{- $names := list -}}
      {{- range $rule.resourceNames -}}{{- $names = append $names (ternary $serving . (eq . "poolhouse-serving")) -}}{{- end -}}
      {{- $_ := set $rule "resourceNames" $names -}}
    {{- end -}}
    {{- $rules = append $rules $rule -}}
  {{- end -}}
{{- end -}}
{{ toYaml $rules }}
{{- end }}
