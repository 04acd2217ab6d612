{{- define "pliant.name" -}}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{- end -}}
{{- define "pliant.account" -}}{{ .Values.serviceAccount.name | default (include "pliant.name" .) }}{{- end -}}
{{- define "pliant.auth" -}}{{ .Values.auth.existingSecret | default (printf "%s-auth" (include "pliant.name" .)) }}{{- end -}}
{{- define "pliant.tls" -}}{{ .Values.tls.existingSecret | default (printf "%s-tls" (include "pliant.name" .)) }}{{- end -}}
{{- define "pliant.selector" -}}
app.kubernetes.io/name: pliant
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
{{- define "pliant.agent" -}}
app.kubernetes.io/name: pliant-node-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
{{- define "pliant.labels" -}}
{{ include "pliant.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}
{{/* The API server calls the leader about pods with a part of a GPU; `pliant cluster webhook` prints the same. */}}
{{- define "pliant.webhook" }}
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata:
  name: {{ include "pliant.name" .top }}
  labels: {{- include "pliant.labels" .top | nindent 4 }}
webhooks:
- name: pods.pliant.dev
  admissionReviewVersions: [v1]
  clientConfig:
    service: {name: {{ include "pliant.name" .top }}, namespace: {{ .top.Release.Namespace }}, port: {{ .top.Values.service.port }}, path: /kubernetes/pods}
    {{- with .bundle }}
    caBundle: {{ . }}
    {{- end }}
  rules:
  - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE], scope: Namespaced}
  matchConditions:
  - {name: scheduler, expression: "object.spec.schedulerName == '{{ .top.Values.schedulerName }}'"}
  - name: part
    expression: >-
      has(object.metadata.annotations) &&
      ('gpu-fraction' in object.metadata.annotations || 'gpu-memory' in object.metadata.annotations)
  sideEffects: None
  failurePolicy: Fail
  timeoutSeconds: 5
{{- end }}
