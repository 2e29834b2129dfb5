"""What every service has: settings, logs, an HTTP server with health endpoints and certificates, and a graceful stop.

The webhook, the defaulter, the controllers and the engine of the local cluster use it. It knows no kind and needs no
Kubernetes client.
"""
