{{/* Names do not depend on the release: a cluster has one Poolhouse, and its roles and webhooks refer to fixed names. */}}
{{- define "poolhouse.name" -}}
poolhouse-{{ . }}
{{- end }}

{{/* Arguments: root, service. The user name of the service's ServiceAccount. */}}
{{- define "poolhouse.user" -}}
{{- $root := index . 0 -}}
system:serviceaccount:{{ $root.Release.Namespace }}:{{ include "poolhouse.name" (index . 1) }}
{{- end }}

{{/* Arguments: root, component. Selectors and Poolhouse itself use these labels, so they take precedence over the
user's. */}}
{{- define "poolhouse.labels" -}}
{{- $root := index . 0 -}}
{{- $labels := dict
  "app.kubernetes.io/name" "poolhouse"
  "app.kubernetes.io/part-of" "poolhouse"
  "app.kubernetes.io/instance" $root.Release.Name
  "app.kubernetes.io/managed-by" $root.Release.Service
  "app.kubernetes.io/version" $root.Chart.AppVersion
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
{{- with index . 1 }}{{ $_ := set $labels "app.kubernetes.io/component" . }}{{ end -}}
{{- toYaml (merge $labels $root.Values.global.commonLabels) -}}
{{- end }}

{{/* Arguments: root, component, annotations, labels. The last two may be left out. Prints the labels and annotations of
an object. */}}
{{- define "poolhouse.metadata" -}}
{{- $root := index . 0 -}}
{{- $annotations := dict -}}{{- $labels := dict -}}
{{- if gt (len .) 2 }}{{ $annotations = index . 2 | default dict }}{{ end -}}
{{- if gt (len .) 3 }}{{ $labels = index . 3 | default dict }}{{ end -}}
labels:
  {{- merge (include "poolhouse.labels" (list $root (index . 1)) | fromYaml) $labels | toYaml | nindent 2 }}
{{- with merge dict $annotations $root.Values.global.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "poolhouse.selector" -}}
app.kubernetes.io/part-of: poolhouse
app.kubernetes.io/component: {{ . }}
{{- end }}

{{/* Arguments: root, component. Prints the DNS name of the Service. */}}
{{- define "poolhouse.host" -}}
{{ include "poolhouse.name" (index . 1) }}.{{ (index . 0).Release.Namespace }}.svc
{{- end }}

{{/* Arguments: root, image. */}}
{{- define "poolhouse.image" -}}
{{- $root := index . 0 -}}{{- $image := index . 1 -}}
{{- with $image.registry | default $root.Values.global.imageRegistry }}{{ . }}/{{ end -}}
{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default $root.Chart.AppVersion }}{{ end -}}
{{- end }}

{{/* Prints the log level of all components. A number is the verbosity of klog, which other charts have under the same
name: messages for finding faults begin at 4. */}}
{{- define "poolhouse.logLevel" -}}
{{- $level := .Values.global.logLevel -}}
{{- if kindIs "string" $level }}{{ upper $level }}{{ else }}{{ ge (int $level) 4 | ternary "DEBUG" "INFO" }}{{ end -}}
{{- end }}

{{/* Prints the name of the Secret with the serving certificate. */}}
{{- define "poolhouse.servingSecret" -}}
{{- if eq .Values.certificates.mode "secret" }}{{ .Values.certificates.secret.name }}{{ else }}poolhouse-serving{{ end }}
{{- end }}

{{/* Prints the name of the Secret with the identity seed. */}}
{{- define "poolhouse.identitySecret" -}}
{{ .Values.identitySecret | default "poolhouse-identity" }}
{{- end }}

{{/* Prints the identity seed: that of the Secret, or of the values if the Secret does not exist or cannot be looked up. */}}
{{- define "poolhouse.identitySeed" -}}
{{- $found := lookup "v1" "Secret" .Release.Namespace (include "poolhouse.identitySecret" .) -}}
{{- if $found }}{{ get ($found.data | default dict) "seed" | default "" | b64dec }}{{ else }}{{ .Values.identitySeed }}{{ end -}}
{{- end }}

{{/* Prints the names and addresses of the serving certificate, separated by commas. */}}
{{- define "poolhouse.certificateHosts" -}}
{{- $hosts := list -}}
{{- range $name := list "webhook" "controllers" -}}
{{- $host := include "poolhouse.host" (list $ $name) -}}
{{- $hosts = concat $hosts (list $host (printf "%s.cluster.local" $host)) -}}
{{- end -}}
{{- with .Values.webhook.url }}{{ $hosts = append $hosts ((urlParse .).host | regexFind "^\\[[^]]*\\]|^[^:]*" | trimAll "[]") }}{{ end -}}
{{ join "," $hosts }}
{{- end }}

{{/* Prints whether hooks restore hardware records. The Pods of VMs pull the hook's image without Poolhouse's
credentials. */}}
{{- define "poolhouse.hardwareHook" -}}
{{- $record := .Values.defaulter.hardwareRecord -}}
{{- and .Values.defaulter.enabled (or (eq $record "always") (and (eq $record "auto") (not .Values.global.imagePullSecrets))) | ternary "true" "false" -}}
{{- end }}

{{/* Prints whether the chart has KubeVirt's plugin. */}}
{{- define "poolhouse.plugin" -}}
{{- $served := and (.Capabilities.APIVersions.Has "plugin.kubevirt.io/v1alpha1") (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy") -}}
{{- and (eq (include "poolhouse.hardwareHook" .) "true") $served | ternary "true" "false" -}}
{{- end }}
