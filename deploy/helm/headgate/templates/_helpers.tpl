{{- define "headgate.labels" -}}
app.kubernetes.io/name: headgate
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "headgate.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{- /* As JSON whole numbers stay whole; Helm reads them as floats. */ -}}
{{- define "headgate.config" -}}
{{- if not .Values.apiServers }}
{{- fail "apiServers: say where the API server is reached without a Service, for instance --set 'apiServers={https://192.0.2.1:6443}'; kubectl config view --minify -o jsonpath='{.clusters[0].cluster.server}' shows the address that kubectl uses" }}
{{- end -}}
api-servers: {{ join "," .Values.apiServers | quote }}
healthz-bind-address: {{ .Values.healthzBindAddress | quote }}
metrics-bind-address: {{ .Values.metricsBindAddress | quote }}
log-level: {{ .Values.log.level }}
log-format: {{ .Values.log.format }}
{{- range $name, $value := .Values.config }}
{{ $name }}: {{ $value | toJson }}
{{- end }}
{{- end }}

{{- define "headgate.healthzPort" -}}
{{ regexFind "[0-9]+$" .Values.healthzBindAddress }}
{{- end }}

{{- define "headgate.metricsPort" -}}
{{- if regexMatch "^(127\\.|\\[::1\\]|$)" .Values.metricsBindAddress }}
{{- fail (printf "metricsBindAddress: a PodMonitor cannot reach %q, set 0.0.0.0:10249" .Values.metricsBindAddress) }}
{{- end -}}
{{ regexFind "[0-9]+$" .Values.metricsBindAddress }}
{{- end }}
