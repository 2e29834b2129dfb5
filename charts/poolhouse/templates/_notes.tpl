{{- define "poolhouse.notes" -}}
{{- $kinds := include "poolhouse.kinds" . | fromJson -}}
{{- $names := list -}}{{- $plurals := list -}}
{{- range $kinds.on -}}{{- $names = append $names .kind -}}{{- $plurals = append $plurals .plural -}}{{- end -}}
{{- $names := sortAlpha $names -}}
{{- $connected := not (empty (lookup "v1" "Namespace" "" "kube-system")) -}}
Poolhouse {{ .Chart.AppVersion }} is installed in the namespace {{ .Release.Namespace }}.

Installed kinds: {{ join ", " $names }}
{{- with $kinds.off }}
Not installed (disabled, or provided by KubeVirt): {{ join ", " . }}
{{- end }}
{{- if and $connected (not (lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "virtualmachines.kubevirt.io")) }}

This cluster has no KubeVirt. The controllers become ready when you install it.
{{- end }}

Next steps:

{{ if .Values.hooks.enabled -}}
* Check that the API server reaches the webhook:
    helm test {{ .Release.Name }} -n {{ .Release.Namespace }}
{{- else -}}
* Wait until the services are ready (hooks.enabled is false, so nothing has checked the webhook):
    kubectl wait -n {{ .Release.Namespace }} --for=condition=Available deployments --all --timeout=5m
{{- end }}
{{- if not .Values.crds.enabled }}
* Apply the CRDs, because crds.enabled is false:
    poolhouse crds --beside-kubevirt | kubectl apply --server-side -f -
{{- end }}
{{- if not .Values.rbac.create }}
* Create the roles, because rbac.create is false. Until then the services are not ready.
{{- end }}
{{- if eq .Values.certificates.mode "secret" }}
* Renew the certificate in the Secret {{ .Values.certificates.secret.name }} before it expires, because certificates.mode is secret.
{{- end }}
{{- if has "virtualmachinepools" $plurals }}
* Create a pool (examples/pool.yaml), and look at it:
    kubectl apply -f examples/pool.yaml
    kubectl get virtualmachinepools.kubevirt.io,vm
{{- end }}
{{- if has "virtualmachinewarmpools" $plurals }}
* Create a warm pool (examples/warm-pool.yaml) and claim a VM of it (examples/claim.yaml):
    kubectl get vmwp,vmclaim
{{- end }}
{{- if has "migrationpolicies" $plurals }}
* Create migration policies (examples/migration-policies.yaml), and ask which one a VM uses:
    kubectl poolhouse policy explain vmi/NAME
{{- end }}
{{- if .Values.defaulter.enabled }}
* Existing VMs run on unchanged. Each gets the hardware of its guest when it stops (docs/tasks/existing-vms.md).
  See what the next restart of each VM changes:
    kubectl poolhouse hardware fleet -A
{{- end }}
* Find out what is wrong, and why:
    kubectl poolhouse overview -A --wrong
    kubectl poolhouse why VM
{{- if not .Values.defaulter.enabled }}

VMs are stored without hardware defaulting, because defaulter.enabled is false.
{{- else if or .Values.webhook.defaulting.strict (eq .Values.webhook.defaulting.failurePolicy "Fail") }}

While the webhook is down, nobody can create or change VMs, because webhook.defaulting.{{ ternary "strict is true" "failurePolicy is Fail" .Values.webhook.defaulting.strict }}{{ if and (lt (int .Values.webhook.replicas) 2) (not .Values.webhook.autoscaling.enabled) }} and webhook.replicas is 1{{ end }}.
{{- end }}
{{- if and .Values.defaulter.enabled (eq .Values.macs "deterministic") (not (include "poolhouse.identitySeed" .)) (not .Values.identitySecret) }}

MAC addresses follow from the names of VMs. If another cluster with Poolhouse shares the network, set identitySeed before you create VMs.
{{- end }}
{{- if eq (include "poolhouse.hardwareHook" .) "true" }}

Where KubeVirt has the feature gate {{ if eq (include "poolhouse.plugin" .) "true" }}Plugins or {{ end }}Sidecar, the Pods of VMs get the container {{ include "poolhouse.image" (list . .Values.defaulter.image) }}, which holds their hardware. Every namespace with VMs must be able to pull this image; if not, set defaulter.hardwareRecord to never.
{{- end }}
{{- if not .Values.guard.enabled }}

Everyone who may change a VM may assign it to a warm pool, a claim or a migration policy, because guard.enabled is false.
{{- end }}
{{- if not .Values.networkPolicy.enabled }}

The defaulter may connect to every address, because networkPolicy.enabled is false.
{{- else if not .Values.networkPolicy.webhookFrom }}

Every address may connect to the webhook. To allow only API servers, set networkPolicy.webhookFrom.
{{- end }}
{{- if not (or .Values.metrics.serviceMonitor.enabled .Values.metrics.prometheusRule.enabled) }}

Nothing scrapes the metrics yet. With the Prometheus Operator, set metrics.serviceMonitor.enabled, metrics.prometheusRule.enabled and networkPolicy.metricsFrom.
{{- end }}
{{- if and .Values.rbac.create (not .Values.rbac.aggregate) }}

Only cluster administrators have rights on Poolhouse's kinds, because rbac.aggregate is false.
{{- end }}

Disable admission in an emergency:
    kubectl delete mutatingwebhookconfigurations,validatingwebhookconfigurations -l app.kubernetes.io/part-of=poolhouse
Uninstall ({{ if .Values.crds.keep }}keeps VMs, pools and CRDs{{ else }}deletes the CRDs, all pools and their VMs, because crds.keep is false{{ end }}):
    helm uninstall {{ .Release.Name }} -n {{ .Release.Namespace }}
{{- end }}
