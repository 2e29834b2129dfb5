# syntax=docker/dockerfile:1
# The webhook, the controllers, the portal and the hooks of the chart. The image has no libvirt.
#
#   docker build -t poolhouse/poolhouse:0.1.0 --build-arg DIGEST=sha256:... .
#   docker build --target sbom --output . .         writes its contents to sbom.json (CycloneDX)
#   docker build --build-arg EC2=1 ...              adds boto3 and gRPC, for EC2 instances and for the cluster-autoscaler
#
# `docker buildx imagetools inspect debian:12-slim` prints the digest of the base.
ARG BASE=debian:12-slim
# sha256:..., so that every build has the same base.
ARG DIGEST=

# hadolint ignore=DL3006
FROM ${BASE}${DIGEST:+@${DIGEST}} AS build
# The digest of the base and its package archive pin what is installed.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# Any value adds the packages for warm pools of EC2 instances and for the cluster-autoscaler.
ARG EC2=
COPY requirements/build.lock requirements/webhook.lock requirements/controllers.lock requirements/portal.lock requirements/ec2.lock ./
# Build tools are pinned too: with build isolation pip would fetch the newest ones.
RUN python3 -m venv /opt/poolhouse \
 && if [ -n "${EC2}" ]; then set -- build ec2 portal; else set -- build webhook controllers portal; fi \
 && for each; do \
      /opt/poolhouse/bin/pip install --no-cache-dir --no-build-isolation --require-hashes -r "${each}.lock" || exit 1; \
    done
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY poolhouse/__init__.py ./poolhouse/
COPY poolhouse/api ./poolhouse/api
COPY poolhouse/cli ./poolhouse/cli
COPY poolhouse/console ./poolhouse/console
COPY poolhouse/manifests ./poolhouse/manifests
COPY poolhouse/nodegroups ./poolhouse/nodegroups
COPY poolhouse/portal ./poolhouse/portal
COPY poolhouse/runtime ./poolhouse/runtime
COPY poolhouse/service ./poolhouse/service
COPY webhook ./webhook
COPY controllers ./controllers
# The services validate the defaulter's responses with the package defaulter.contract.
COPY defaulter ./defaulter
RUN /opt/poolhouse/bin/pip install --no-cache-dir --no-build-isolation --no-deps . \
 && /opt/poolhouse/bin/pip uninstall -y pip setuptools

# hadolint ignore=DL3006
FROM ${BASE}${DIGEST:+@${DIGEST}} AS whole
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends python3 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/apt /var/log/dpkg.log
COPY --from=build /opt/poolhouse /opt/poolhouse
COPY LICENSE NOTICE /opt/poolhouse/
COPY requirements/sbom.py /opt/poolhouse/
RUN /opt/poolhouse/bin/python /opt/poolhouse/sbom.py > /opt/poolhouse/sbom.json

# Not an image: a file to export.
# hadolint ignore=DL3049
FROM scratch AS sbom
COPY --from=whole /opt/poolhouse/sbom.json /

FROM whole
ARG VERSION=0.1.0
ARG REVISION=
LABEL org.opencontainers.image.title="Poolhouse" \
      org.opencontainers.image.description="Admission and controllers of Poolhouse, an add-on for KubeVirt" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# The root filesystem may be read-only; certificates are written to POOLHOUSE_TLS_DIR. The user has no passwd entry, so
# HOME is set for the Kubernetes client.
ENV PATH=/opt/poolhouse/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    POOLHOUSE_LOG_FORMAT=json
USER 65532:65532
EXPOSE 8443
# Commands: webhook, controllers, portal, hooks probe, hooks retire.
ENTRYPOINT ["/opt/poolhouse/bin/poolhouse"]
CMD ["--help"]
