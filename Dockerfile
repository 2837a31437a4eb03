# The controller's image, for amd64 and arm64:
#   docker buildx build --platform linux/amd64,linux/arm64 --tag REPOSITORY:TAG --push .
# It holds what the lab's image holds (hack/lab/images/adapterimage.py): the locked packages, each checked against its hash, and
# the wheel of this checkout. tests/unit/repo/test_dockerfile.py compares the two. The base image is pinned by the digest of its
# index of all architectures.
FROM python:3.11-slim-bookworm@sha256:0bee7276f83efd4a1ee05bbbf4281d95ed28e079220a9457f25a93e3f1e3c31b AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements.lock requirements-build.lock ./
# Nothing is built from source but our own wheel, so that both architectures get what was tested. No compiler is needed.
RUN pip install --no-deps --no-compile --only-binary=:all: --require-hashes --prefix=/install --requirement requirements.lock
RUN pip install --no-deps --only-binary=:all: --require-hashes --requirement requirements-build.lock
COPY pyproject.toml README.md LICENSE ./
COPY manifests/rbac manifests/rbac
COPY manifests/crds manifests/crds
COPY manifests/gate-policy.yaml manifests/gate-policy.yaml
COPY kustomize/components/worker-access/policy.yaml kustomize/components/worker-access/policy.yaml
COPY kustomize/components/worker-access/workeraccesses.yaml kustomize/components/worker-access/workeraccesses.yaml
COPY adapter adapter
RUN pip wheel --no-deps --no-build-isolation --no-index --wheel-dir /wheel .
RUN pip install --no-deps --no-compile --no-index --prefix=/install /wheel/*.whl
# The root file system is read-only in the cluster, so the bytecode comes along; it depends on no file times.
RUN python3 -m compileall -q --invalidation-mode unchecked-hash -s /install -p /usr/local /install

FROM python:3.11-slim-bookworm@sha256:0bee7276f83efd4a1ee05bbbf4281d95ed28e079220a9457f25a93e3f1e3c31b
# The published image has no bytecode of the standard library, and nobody could keep it: each start would compile what it imports.
RUN python3 -m compileall -q --invalidation-mode unchecked-hash -x site-packages /usr/local/lib/python3.11
COPY --from=build /install /usr/local
ENV LANG=C.UTF-8 HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /
ENTRYPOINT ["python3", "-m", "adapter"]
