{{/* (root, component, scheme, env, mounts): a Deployment. `env` is a YAML list, `mounts` has a path for each volume. */}}
{{- define "poolhouse.deployment" -}}
{{- $root := .root -}}
{{- $values := get $root.Values .component -}}
{{- $name := include "poolhouse.name" .component -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "poolhouse.labels" (list $root .component) | nindent 4 }}
spec:
  replicas: {{ $values.replicas }}
  selector:
    matchLabels:
      {{- include "poolhouse.selector" .component | nindent 6 }}
  strategy:
    {{- if $values.strategy }}
    {{- toYaml $values.strategy | nindent 4 }}
    {{- else if $values.hostNetwork }}
    # Two of them cannot listen on one node.
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: 1, maxSurge: 0}
    {{- else }}
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
    {{- end }}
  template:
    metadata:
      labels:
        {{- include "poolhouse.labels" (list $root .component) | nindent 8 }}
        {{- with $values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        kubectl.kubernetes.io/default-container: {{ .component }}
        {{- with $values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ $name }}
      automountServiceAccountToken: {{ ne .component "defaulter" }}
      enableServiceLinks: false
      {{- with $root.Values.global.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $root.Values.global.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- if $values.hostNetwork }}
      hostNetwork: true
      dnsPolicy: ClusterFirstWithHostNet
      {{- end }}
      {{- with $values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      topologySpreadConstraints:
        {{- if $values.topologySpreadConstraints }}
        {{- toYaml $values.topologySpreadConstraints | nindent 8 }}
        {{- else }}
        {{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
        - maxSkew: 1
          topologyKey: {{ $key }}
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "poolhouse.selector" $.component | nindent 14 }}
        {{- end }}
        {{- end }}
      securityContext:
        {{- include "poolhouse.runs" $root | nindent 8 }}
      # Longer than the pause before the end, the longest timeout of an admission, and a margin.
      terminationGracePeriodSeconds: 45
      containers:
        - name: {{ .component }}
          image: {{ include "poolhouse.image" (list $root $values.image) }}
          imagePullPolicy: {{ $values.image.pullPolicy }}
          command: [poolhouse, {{ .component }}]
          env:
            - {name: POOLHOUSE_LISTEN, value: "0.0.0.0:{{ $values.port }}"}
            - {name: POOLHOUSE_LOG_FORMAT, value: json}
            - {name: POOLHOUSE_LOG_LEVEL, value: {{ $root.Values.global.logLevel }}}
            - {name: POOLHOUSE_IDENTITY_SEED, value: {{ $root.Values.identitySeed | quote }}}
            - {name: POOLHOUSE_MACS, value: {{ $root.Values.macs }}}
            {{- .env | nindent 12 }}
            {{- with $values.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            - {name: {{ .scheme | lower }}, containerPort: {{ $values.port }}, protocol: TCP}
          # The first time, it waits for its certificate. What it needs beside that to be ready may come when it likes: a
          # restart brings KubeVirt no sooner.
          startupProbe:
            httpGet: {path: /healthz, port: {{ .scheme | lower }}, scheme: {{ .scheme }}}
            periodSeconds: 2
            timeoutSeconds: 3
            failureThreshold: 150
          readinessProbe:
            httpGet: {path: /readyz, port: {{ .scheme | lower }}, scheme: {{ .scheme }}}
            periodSeconds: 5
            timeoutSeconds: 3
          livenessProbe:
            httpGet: {path: /healthz, port: {{ .scheme | lower }}, scheme: {{ .scheme }}}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 3
          lifecycle:
            # Until nobody is sent here any longer; then what is under way is answered.
            preStop:
              sleep: {seconds: 5}
          resources:
            {{- toYaml $values.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          volumeMounts:
            {{- range $volume, $path := .mounts }}
            - {name: {{ $volume }}, mountPath: {{ $path }}}
            {{- end }}
            {{- with $values.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        {{- range $volume, $_ := .mounts }}
        - name: {{ $volume }}
          emptyDir: {{ if eq $volume "tls" }}{medium: Memory, sizeLimit: 1Mi}{{ else }}{sizeLimit: 256Mi}{{ end }}
        {{- end }}
        {{- with $values.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end }}

{{/* As whom pods run. */}}
{{- define "poolhouse.runs" -}}
runAsNonRoot: true
seccompProfile: {type: RuntimeDefault}
{{- range $id, $number := .Values.global.runAs }}
{{- if kindIs "invalid" $number | not }}
{{ $id }}: {{ int64 $number }}
{{- end }}
{{- end }}
{{- end }}

{{/* (root, component, port name) */}}
{{- define "poolhouse.service" -}}
{{- $values := get .root.Values .component -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "poolhouse.name" .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "poolhouse.labels" (list .root .component) | nindent 4 }}
spec:
  type: ClusterIP
  selector:
    {{- include "poolhouse.selector" .component | nindent 4 }}
  ports:
    - {name: {{ .portName }}, port: {{ .port }}, targetPort: {{ .portName }}, protocol: TCP}
{{- if and $values.podDisruptionBudget.enabled (gt (int $values.replicas) 1) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "poolhouse.name" .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "poolhouse.labels" (list .root .component) | nindent 4 }}
spec:
  maxUnavailable: {{ $values.podDisruptionBudget.maxUnavailable }}
  # A pod that is not ready protects nothing: it must not hold up the drain of its node.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "poolhouse.selector" .component | nindent 6 }}
{{- end }}
{{- end }}
