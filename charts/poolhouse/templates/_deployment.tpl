{{/* Arguments: root, component, command (default: the component), scheme, env (a YAML list), mounts (volume: path), secrets (volume: {secret, path}),
configMap ({name, volume, path}). Prints a Deployment. */}}
{{- define "poolhouse.deployment" -}}
{{- $root := .root -}}
{{- $values := get $root.Values .component -}}
{{- $name := include "poolhouse.name" .component -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  {{- include "poolhouse.metadata" (list $root .component) | nindent 2 }}
spec:
  {{- if not ($values.autoscaling | default dict).enabled }}
  replicas: {{ $values.replicas }}
  {{- end }}
  revisionHistoryLimit: {{ $values.revisionHistoryLimit }}
  selector:
    matchLabels:
      {{- include "poolhouse.selector" .component | nindent 6 }}
  strategy:
    {{- if $values.strategy }}
    {{- toYaml $values.strategy | nindent 4 }}
    {{- else if $values.hostNetwork }}
    # Two Pods on one node cannot listen on the same port.
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: 1, maxSurge: 0}
    {{- else }}
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
    {{- end }}
  template:
    metadata:
      labels:
        {{- merge (include "poolhouse.labels" (list $root .component) | fromYaml) $values.podLabels | toYaml | nindent 8 }}
      annotations:
        {{- merge (dict) $values.podAnnotations $root.Values.global.commonAnnotations (dict "kubectl.kubernetes.io/default-container" .component) | toYaml | nindent 8 }}
    spec:
      serviceAccountName: {{ $name }}
      automountServiceAccountToken: {{ ne .component "defaulter" }}
      {{- include "poolhouse.pod" (list $root $values) | nindent 6 }}
      {{- with $values.runtimeClassName }}
      runtimeClassName: {{ . }}
      {{- end }}
      {{- if $values.hostNetwork }}
      hostNetwork: true
      {{- end }}
      {{- with $values.dnsPolicy | default (ternary "ClusterFirstWithHostNet" "" ($values.hostNetwork | default false)) }}
      dnsPolicy: {{ . }}
      {{- end }}
      {{- with $values.dnsConfig }}
      dnsConfig:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.hostAliases }}
      hostAliases:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.topologySpreadConstraints }}
      topologySpreadConstraints:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if not (or $values.affinity $values.topologySpreadConstraints) }}
      # The scheduler ignores optional topologySpreadConstraints on nodes that lack one of their labels, and many nodes
      # have no zone.
      affinity:
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
            {{- range $key, $weight := dict "kubernetes.io/hostname" 100 "topology.kubernetes.io/zone" 50 }}
            - weight: {{ $weight }}
              podAffinityTerm:
                topologyKey: {{ $key }}
                labelSelector:
                  matchLabels:
                    {{- include "poolhouse.selector" $.component | nindent 20 }}
                # During a rollout, Pods of the earlier template do not count.
                matchLabelKeys: [pod-template-hash]
            {{- end }}
      {{- end }}
      # Longer than the preStop hook and the longest admission timeout together.
      terminationGracePeriodSeconds: 45
      containers:
        - name: {{ .component }}
          image: {{ include "poolhouse.image" (list $root $values.image) }}
          imagePullPolicy: {{ $values.image.pullPolicy }}
          command: [poolhouse, {{ .command | default .component }}]
          env:
            - {name: POOLHOUSE_LISTEN, value: "[::]:{{ $values.port }}"}
            - {name: POOLHOUSE_LOG_FORMAT, value: json}
            - {name: POOLHOUSE_LOG_LEVEL, value: {{ include "poolhouse.logLevel" $root }}}
            {{- if ne .component "console" }}
            - {name: POOLHOUSE_IDENTITY_DIR, value: /run/poolhouse/identity}
            - {name: POOLHOUSE_MACS, value: {{ $root.Values.macs }}}
            {{- end }}
            {{- .env | nindent 12 }}
            {{- with $values.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            - {name: {{ .scheme | lower }}, containerPort: {{ $values.port }}, protocol: TCP}
            {{- with $values.virtualNode }}
            {{- if .enabled }}
            - {name: kubelet, containerPort: {{ .port }}, protocol: TCP}
            {{- end }}
            {{- end }}
          # At the first start the service waits for its certificate. Only readiness depends on other components, such as
          # KubeVirt, because a restart does not help when they are missing.
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
            # Until endpoints no longer contain this Pod. The service then completes its requests and exits.
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
            {{- if ne .component "console" }}
            - {name: identity, mountPath: /run/poolhouse/identity, readOnly: true}
            {{- end }}
            {{- range $volume, $each := .secrets }}
            - {name: {{ $volume }}, mountPath: {{ $each.path }}, readOnly: true}
            {{- end }}
            {{- with .configMap }}
            - {name: {{ .volume }}, mountPath: {{ .path }}, readOnly: true}
            {{- end }}
            {{- with $values.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        {{- range $volume, $_ := .mounts }}
        - name: {{ $volume }}
          emptyDir: {{ if eq $volume "tls" }}{medium: Memory, sizeLimit: 1Mi}{{ else if eq $volume "state" }}{medium: Memory, sizeLimit: 64Mi}{{ else }}{sizeLimit: 256Mi}{{ end }}
        {{- end }}
        {{- if ne .component "console" }}
        - {name: identity, secret: {secretName: {{ include "poolhouse.identitySecret" $root }}}}
        {{- end }}
        {{- range $volume, $each := .secrets }}
        - {name: {{ $volume }}, secret: {secretName: {{ $each.secret }}}}
        {{- end }}
        {{- with .configMap }}
        - name: {{ .volume }}
          configMap: {name: {{ .name }}}
        {{- end }}
        {{- with $values.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end }}

{{/* Arguments: root, values of the component. Prints what the global values say of every Pod, Pods of hooks too. */}}
{{- define "poolhouse.pod" -}}
{{- $root := index . 0 -}}
{{- $global := $root.Values.global -}}
{{- $values := index . 1 -}}
enableServiceLinks: false
{{- with $global.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ kindIs "string" . | ternary . (get (kindIs "map" . | ternary . dict) "name") }}
  {{- end }}
{{- end }}
{{- with $values.priorityClassName | default $global.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with merge (dict) $values.nodeSelector $global.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with concat $values.tolerations $global.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  seccompProfile: {type: RuntimeDefault}
  {{- range $id, $number := $global.runAs }}
  {{- if kindIs "invalid" $number | not }}
  {{ $id }}: {{ int64 $number }}
  {{- end }}
  {{- end }}
{{- end }}

{{/* Arguments: root, component, portName, port. Prints a Service, a HorizontalPodAutoscaler if wanted and,
with several replicas, a PodDisruptionBudget. */}}
{{- define "poolhouse.service" -}}
{{- $values := get .root.Values .component -}}
{{- $scaled := ($values.autoscaling | default dict).enabled -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "poolhouse.name" .component }}
  namespace: {{ .root.Release.Namespace }}
  {{- include "poolhouse.metadata" (list .root .component $values.service.annotations) | nindent 2 }}
spec:
  type: ClusterIP
  {{- with $values.service.ipFamilyPolicy }}
  ipFamilyPolicy: {{ . }}
  {{- end }}
  {{- with $values.service.ipFamilies }}
  ipFamilies: {{ toJson . }}
  {{- end }}
  selector:
    {{- include "poolhouse.selector" .component | nindent 4 }}
  ports:
    - {name: {{ .portName }}, port: {{ .port }}, targetPort: {{ .portName }}, protocol: TCP}
{{- if and $values.podDisruptionBudget.enabled (gt (int (ternary ($values.autoscaling | default dict).minReplicas $values.replicas ($scaled | default false))) 1) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "poolhouse.name" .component }}
  namespace: {{ .root.Release.Namespace }}
  {{- include "poolhouse.metadata" (list .root .component) | nindent 2 }}
spec:
  maxUnavailable: {{ $values.podDisruptionBudget.maxUnavailable }}
  # A Pod that is not ready must not block the drain of its node.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "poolhouse.selector" .component | nindent 6 }}
{{- end }}
{{- if $scaled }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ include "poolhouse.name" .component }}
  namespace: {{ .root.Release.Namespace }}
  {{- include "poolhouse.metadata" (list .root .component) | nindent 2 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ include "poolhouse.name" .component }}}
  minReplicas: {{ $values.autoscaling.minReplicas }}
  maxReplicas: {{ $values.autoscaling.maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target: {type: Utilization, averageUtilization: {{ $values.autoscaling.targetCPUUtilizationPercentage }}}
{{- end }}
{{- end }}

{{/* Argument: {url, secret}. Prints the environment variables of a client of Prometheus. */}}
{{- define "poolhouse.prometheusEnv" -}}
{{- if .url }}
- {name: POOLHOUSE_PROMETHEUS_URL, value: {{ .url | quote }}}
{{- if .secret }}
- {name: POOLHOUSE_PROMETHEUS_DIR, value: /run/poolhouse/prometheus}
{{- end }}
{{- end }}
{{- end -}}
