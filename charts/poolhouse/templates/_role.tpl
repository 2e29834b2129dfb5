{{/* (root, component, name, scope: Cluster or nothing, rules, annotations): a role and its binding */}}
{{- define "poolhouse.role" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .scope }}Role
metadata:
  name: {{ .name }}
  {{- if not .scope }}
  namespace: {{ .root.Release.Namespace }}
  {{- end }}
  labels:
    {{- include "poolhouse.labels" (list .root .component) | nindent 4 }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
rules:
  {{- include "poolhouse.rules" (list .root .rules) | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .scope }}RoleBinding
metadata:
  name: {{ .name }}
  {{- if not .scope }}
  namespace: {{ .root.Release.Namespace }}
  {{- end }}
  labels:
    {{- include "poolhouse.labels" (list .root .component) | nindent 4 }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .scope }}Role
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .name }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}
