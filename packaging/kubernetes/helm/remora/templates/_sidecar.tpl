{{/*
The container of the sidecar, for the initContainers of a pod, and behind it the one that intercepts
if values say so. Call it with the root context:

  initContainers:
    {{- include "remora.initContainers" . | nindent 8 }}
*/}}
{{- define "remora.initContainers" -}}
{{- $v := .Values.remora | default dict -}}
- name: remora
  image: {{ $v.image | default "remora:latest" | quote }}
  restartPolicy: Always
  args: [run, -c, /config/remora.yaml, --watch]
  env:
    - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    {{- range $name, $value := $v.env }}
    - {name: {{ $name | quote }}, value: {{ $value | quote }}}
    {{- end }}
  {{- with $v.ports }}
  ports:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  startupProbe:
    exec: {command: [/remora, healthcheck]}
    periodSeconds: 1
    timeoutSeconds: 4
    failureThreshold: 60
  readinessProbe:
    exec: {command: [/remora, healthcheck]}
    periodSeconds: 2
    timeoutSeconds: 4
  livenessProbe:
    exec: {command: [/remora, healthcheck, --live]}
    periodSeconds: 10
    timeoutSeconds: 4
    failureThreshold: 6
  {{- if $v.drain }}
  lifecycle:
    preStop:
      exec: {command: [/remora, drain, --wait]}
  {{- end }}
  resources:
    {{- $v.resources | default (dict "requests" (dict "cpu" "100m" "memory" "64Mi") "limits" (dict "memory" "896Mi")) | toYaml | nindent 4 }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: {drop: [ALL]}
    seccompProfile: {type: RuntimeDefault}
  volumeMounts:
    - {name: remora-config, mountPath: /config}
    - {name: remora-cache, mountPath: /cache}
{{- with $v.intercept }}
- name: remora-intercept
  image: {{ .image | quote }}
  args: [install, --proxy-uid, "65532"{{ range .args }}, {{ . | quote }}{{ end }}]
  securityContext:
    runAsUser: 0
    runAsNonRoot: false
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: {drop: [ALL], add: [NET_ADMIN, NET_RAW]}
    seccompProfile: {type: RuntimeDefault}
  resources: {requests: {cpu: 10m, memory: 40Mi}, limits: {memory: 128Mi}}
  volumeMounts: [{name: remora-run, mountPath: /run}]
{{- end }}
{{- end -}}

{{/* The volumes of the sidecar, for the volumes of the pod. */}}
{{- define "remora.volumes" -}}
- {name: remora-config, configMap: {name: {{ .Release.Name }}-remora}}
- {name: remora-cache, emptyDir: {}}
{{- if .Values.remora.intercept }}
- {name: remora-run, emptyDir: {}} # iptables locks /run/xtables.lock
{{- end }}
{{- end -}}

{{/* The ConfigMap with the configuration, values.remora.config. */}}
{{- define "remora.configMap" -}}
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-remora}
data:
  remora.yaml: |
    {{- required "remora.config: the sidecar's configuration is missing" .Values.remora.config | nindent 4 }}
{{- end -}}
