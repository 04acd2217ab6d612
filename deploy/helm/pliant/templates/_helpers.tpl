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
