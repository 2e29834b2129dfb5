{{/* Arguments: root, component, name, scope ("Cluster" or ""), namespace (if not the release's), rules, annotations.
Prints a role and its binding. */}}
{{- define "poolhouse.role" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .scope }}Role
metadata:
  name: {{ .name }}
  {{- if not .scope }}
  namespace: {{ .namespace | default .root.Release.Namespace }}
  {{- end }}
  {{- include "poolhouse.metadata" (list .root .component .annotations) | nindent 2 }}
rules:
  {{- include "poolhouse.rules" (list .root .rules) | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .scope }}RoleBinding
metadata:
  name: {{ .name }}
  {{- if not .scope }}
  namespace: {{ .namespace | default .root.Release.Namespace }}
  {{- end }}
  {{- include "poolhouse.metadata" (list .root .component .annotations) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .scope }}Role
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .name }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{/* Arguments: root, rules. Prints the rules without those of kinds that are left out, as a YAML list. */}}
{{- define "poolhouse.rules" -}}
{{- $root := index . 0 -}}
{{- $off := list -}}
{{- $kinds := include "poolhouse.kinds" $root | fromJson -}}
{{- range $name, $kind := $root.Files.Get "generated/kinds.yaml" | fromYaml -}}
  {{- if has $kind.plural $kinds.off -}}{{- $off = append $off $name -}}{{- end -}}
{{- end -}}
{{- $serving := include "poolhouse.servingSecret" $root -}}
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
