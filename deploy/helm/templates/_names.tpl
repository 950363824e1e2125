{{/* What tells the pods of this release from others. */}}
{{- define "callsmith.selector" -}}
app.kubernetes.io/name: callsmith
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The secret with the address of the store; empty without a store. */}}
{{- define "callsmith.storeSecret" -}}
{{- if .Values.store.existingSecret }}{{ .Values.store.existingSecret }}{{ else if .Values.store.url }}{{ .Release.Name }}{{ end -}}
{{- end }}
