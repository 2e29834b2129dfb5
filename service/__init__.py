"""What each service has besides its work: settings, logs, an HTTP server with health endpoints, and a graceful stop.

Webhook, defaulter, controllers and the embedded stack's engine start from here. It knows no kind and needs no
Kubernetes client.
"""
