"""Common parts of all services: settings, logs, an HTTP server with health endpoints and certificates, graceful stop.

The webhook, the defaulter, the controllers and the engine of the local cluster use this package. It depends on no kind
and on no Kubernetes client.
"""
