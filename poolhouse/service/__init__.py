"""Common parts of all services: settings, logs, an HTTP server with health endpoints and certificates, graceful stop,
and clients of what is not the Kubernetes API.

The webhook, the defaulter, the controllers, the console and the engine of the local cluster use this package. It
depends on no kind and on no Kubernetes client.
"""
