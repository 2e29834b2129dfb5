{{/* Names are the same in every cluster: Poolhouse is there once, and its roles and webhooks name each other. */}}
{{- define "poolhouse.name" -}}
poolhouse-{{ . }}
{{- end }}

{{/* (root, component) */}}
{{- define "poolhouse.labels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: poolhouse
app.kubernetes.io/part-of: poolhouse
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- with index . 1 }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- with $root.Values.global.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "poolhouse.selector" -}}
app.kubernetes.io/part-of: poolhouse
app.kubernetes.io/component: {{ . }}
{{- end }}

{{/* (root, component): the name by which others reach it */}}
{{- define "poolhouse.host" -}}
{{ include "poolhouse.name" (index . 1) }}.{{ (index . 0).Release.Namespace }}.svc
{{- end }}

{{/* (root, image) */}}
{{- define "poolhouse.image" -}}
{{- $root := index . 0 -}}{{- $image := index . 1 -}}
{{- with $image.registry | default $root.Values.global.imageRegistry }}{{ . }}/{{ end -}}
{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default $root.Chart.AppVersion }}{{ end -}}
{{- end }}

{{/* The Secret that servers show a certificate of. */}}
{{- define "poolhouse.serving" -}}
{{- if eq .Values.certificates.mode "secret" }}{{ .Values.certificates.secret.name }}{{ else }}poolhouse-serving{{ end }}
{{- end }}

{{/* The names and addresses by which our servers are reached, separated by commas. */}}
{{- define "poolhouse.hosts" -}}
{{- $hosts := list -}}
{{- range $name := list "webhook" "controllers" -}}
{{- $host := include "poolhouse.host" (list $ $name) -}}
{{- $hosts = concat $hosts (list $host (printf "%s.cluster.local" $host)) -}}
{{- end -}}
{{- with .Values.webhook.url }}{{ $hosts = append $hosts ((urlParse .).host | regexFind "^\\[[^]]*\\]|^[^:]*" | trimAll "[]") }}{{ end -}}
{{ join "," $hosts }}
{{- end }}
