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
{{- if .Values.metricsTLS.secretName }}
metrics-tls-cert-file: /etc/headgate-tls/tls.crt
metrics-tls-key-file: /etc/headgate-tls/tls.key
{{- end }}
hash-key-file: /etc/headgate-key/key
log-level: {{ .Values.log.level }}
log-format: {{ .Values.log.format }}
{{- range $name, $value := .Values.config }}
{{ $name }}: {{ $value | toJson }}
{{- end }}
{{- end }}

{{- define "headgate.hashKeySecret" -}}
{{ (.Values.hashKey).existingSecret | default "headgate-hash-key" }}
{{- end }}

{{- define "headgate.healthzPort" -}}
{{ regexFind "[0-9]+$" .Values.healthzBindAddress }}
{{- end }}

{{- define "headgate.metricsPort" -}}
{{- if regexMatch "^(127\\.|\\[::1\\]|$)" .Values.metricsBindAddress }}
{{- fail (printf "metricsBindAddress: Prometheus cannot reach %q, set 0.0.0.0:10249" .Values.metricsBindAddress) }}
{{- end -}}
{{ regexFind "[0-9]+$" .Values.metricsBindAddress }}
{{- end }}

{{- /* How the Prometheus operator scrapes: what both kinds of monitor have. Called with
the root and the values of the monitor. */ -}}
{{- define "headgate.scrape" -}}
{{- $root := index . 0 }}{{ $monitor := index . 1 -}}
- port: metrics
  interval: {{ $monitor.interval }}
  {{- with $root.Values.metricsTLS }}
  {{- if .secretName }}
  scheme: https
  tlsConfig:
    {{- toYaml .tlsConfig | nindent 4 }}
  {{- end }}
  {{- end }}
  relabelings:
    - sourceLabels: [__meta_kubernetes_pod_node_name]
      targetLabel: node
    {{- with $monitor.relabelings }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $monitor.metricRelabelings }}
  metricRelabelings:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- /* What an agent and a check have in common. */ -}}
{{- define "headgate.container" -}}
image: {{ include "headgate.image" . }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
env:
  - name: NODE_NAME
    valueFrom:
      fieldRef:
        fieldPath: spec.nodeName
securityContext:
  privileged: {{ .Values.privileged }}
  runAsUser: 0
  readOnlyRootFilesystem: true
  {{- if not .Values.privileged }}
  capabilities:
    drop: [ALL]
    add: [SYS_ADMIN, SYS_PTRACE, NET_ADMIN]
  seccompProfile:
    type: RuntimeDefault
  # The profiles of container runtimes forbid to look at processes of
  # other containers.
  appArmorProfile:
    type: Unconfined
  seLinuxOptions:
    type: spc_t
  {{- end }}
volumeMounts:
  - name: config
    mountPath: /etc/headgate
    readOnly: true
  # Where nobody has mounted a BPF file system the agent does, and the
  # mount has to outlive the container. Only privileged ones may.
  - name: bpf
    mountPath: /sys/fs/bpf
    mountPropagation: {{ ternary "Bidirectional" "HostToContainer" .Values.privileged }}
  # Not at /sys/fs/cgroup, where the runtime puts a view of its own:
  # what is attached there would be for this container alone.
  - name: cgroup
    mountPath: /host/cgroup
    readOnly: true
  # What outlives an agent: its report, its key of hashes, addresses of API servers.
  - name: state
    mountPath: /var/lib/headgate
  # The key of hashes, the same on all nodes.
  - name: hash-key
    mountPath: /etc/headgate-key
    readOnly: true
  {{- if .Values.metricsTLS.secretName }}
  # The folder, not its files: those are followed when the Secret changes.
  - name: metrics-tls
    mountPath: /etc/headgate-tls
    readOnly: true
  {{- end }}
{{- end }}
