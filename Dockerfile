# syntax=docker/dockerfile:1
# The webhook, the controllers and the chart's hooks: one image, one program. No libvirt is in it.
#
#   docker build -t poolhouse/poolhouse:0.1.0 --build-arg DIGEST=sha256:... .
#   docker build --target sbom --output . .         what it is made of, as sbom.json (CycloneDX)
#   docker build --build-arg EC2=1 ...              with boto3 and gRPC besides, for warm pools of EC2 instances
#
# DIGEST pins the base (`docker buildx imagetools inspect debian:12-slim`).
ARG BASE=debian:12-slim
# sha256:..., so that tomorrow's build stands on the same base.
ARG DIGEST=

# hadolint ignore=DL3006
FROM ${BASE}${DIGEST:+@${DIGEST}} AS build
# What is installed here is pinned by the base's digest and by the archive that it names.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# Set, if instances of EC2 are to be held.
ARG EC2=
COPY requirements/build.lock requirements/webhook.lock requirements/controllers.lock requirements/ec2.lock ./
# What builds a package is pinned too: with isolation pip would fetch the newest, unseen.
RUN python3 -m venv /opt/poolhouse \
 && if [ -n "${EC2}" ]; then set -- build ec2; else set -- build webhook controllers; fi \
 && for each; do \
      /opt/poolhouse/bin/pip install --no-cache-dir --no-build-isolation --require-hashes -r "${each}.lock" || exit 1; \
    done
COPY pyproject.toml README.md ./
COPY cli ./cli
COPY apimachinery ./apimachinery
COPY service ./service
COPY kinds ./kinds
COPY manifests ./manifests
COPY migrationpolicies ./migrationpolicies
COPY runtime ./runtime
COPY webhook ./webhook
COPY controllers ./controllers
# The contract with the defaulter, by which its answers are judged; the libvirt that it needs itself is not here.
COPY defaulter ./defaulter
RUN /opt/poolhouse/bin/pip install --no-cache-dir --no-build-isolation --no-deps . \
 && /opt/poolhouse/bin/pip uninstall -y pip setuptools

# hadolint ignore=DL3006
FROM ${BASE}${DIGEST:+@${DIGEST}} AS whole
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends python3 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/apt /var/log/dpkg.log
COPY --from=build /opt/poolhouse /opt/poolhouse
COPY requirements/sbom.py /opt/poolhouse/
RUN /opt/poolhouse/bin/python /opt/poolhouse/sbom.py > /opt/poolhouse/sbom.json

# No image: a file for whoever builds.
# hadolint ignore=DL3049
FROM scratch AS sbom
COPY --from=whole /opt/poolhouse/sbom.json /

FROM whole
ARG VERSION=0.1.0
ARG REVISION=
LABEL org.opencontainers.image.title="Poolhouse" \
      org.opencontainers.image.description="Admission and controllers of Poolhouse, an add-on for KubeVirt" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# The root may be read-only; certificates go where POOLHOUSE_TLS_DIR says. The user has no entry and so no home, which the
# Kubernetes client insists on.
ENV PATH=/opt/poolhouse/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    POOLHOUSE_LOG_FORMAT=json
USER 65532:65532
EXPOSE 8443
# One of: webhook, controllers, hooks probe, hooks retire.
ENTRYPOINT ["/opt/poolhouse/bin/poolhouse"]
CMD ["--help"]
