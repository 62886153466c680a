# Weir in a container; deploy/container.md says how it is built and run.
#   docker build --target cpu -t weir .
#   docker build --target cuda -t weir:cuda .
# The two differ in where they are built and what they stand on; both run without a shell, as any user, on a read-only root.

ARG BASE=debian:12-slim
ARG CUDA_BUILD_BASE=nvidia/cuda:12.8.1-devel-ubuntu24.04
ARG CUDA_BASE=nvidia/cuda:12.8.1-runtime-ubuntu24.04
ARG VERSION=0.1.0
ARG REVISION=unknown

# ---- what compiles Weir, without its sources: stays in the cache while packages.sh does
FROM ${BASE} AS tools
COPY deploy/packages.sh /packages.sh
RUN bash -euc '. /packages.sh; weir_install "${weir_packages[@]}" ccache; rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin'

# ---- the programs, and /rootfs: all that the image holds
FROM tools AS build
WORKDIR /src
COPY . .
# on: builds everything and runs the tests first; the image is not made where one fails
ARG TESTS=off
RUN --mount=type=cache,id=weir-ccache,target=/ccache \
    deploy/container/build.sh release "$TESTS" && deploy/container/rootfs.sh build/release /rootfs

# ---- cpu: nothing but /rootfs
FROM scratch AS cpu
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="Weir" \
      org.opencontainers.image.description="Token streams over gRPC from decoders with a state of constant size" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0 AND BSD-2-Clause AND BSD-3-Clause AND MIT AND Zlib AND LGPL-2.1-or-later AND GPL-3.0-or-later WITH GCC-exception-3.1"
COPY --from=build /rootfs /
ENV PATH=/usr/bin WEIR_LISTEN=0.0.0.0:7070 WEIR_MODEL=/zoo/tales-linear,/zoo/tales-softmax
USER 10001:10001
EXPOSE 7070
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=120s --retries=3 CMD ["/usr/bin/weir", "info", "--quiet"]
ENTRYPOINT ["/usr/bin/weir-server"]

# ---- the same on NVIDIA's images; Ubuntu 24.04 has the library versions of Debian 12
FROM ${CUDA_BUILD_BASE} AS cuda-build
COPY deploy/packages.sh /packages.sh
RUN bash -euc '. /packages.sh; weir_install "${weir_packages[@]}" ccache; rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin'
WORKDIR /src
COPY . .
# compute capabilities; fewer build faster
ARG CUDA_ARCHITECTURES="80;90;100;120"
RUN --mount=type=cache,id=weir-ccache,target=/ccache \
    deploy/container/build.sh cuda off "-DWEIR_CUDA_ARCHITECTURES=$CUDA_ARCHITECTURES" && deploy/container/rootfs.sh --without-libc build/cuda /rootfs

FROM ${CUDA_BASE} AS cuda
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="Weir" \
      org.opencontainers.image.description="Token streams over gRPC from decoders with a state of constant size" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0 AND BSD-2-Clause AND BSD-3-Clause AND MIT AND Zlib AND LicenseRef-NVIDIA"
COPY --from=cuda-build /rootfs /opt/weir
ENV PATH=/opt/weir/usr/bin:${PATH} LD_LIBRARY_PATH=/opt/weir/usr/lib:${LD_LIBRARY_PATH} \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    WEIR_LISTEN=0.0.0.0:7070 WEIR_DEVICE=cuda:0 \
    WEIR_MODEL=/opt/weir/zoo/tales-linear,/opt/weir/zoo/tales-softmax
USER 10001:10001
EXPOSE 7070
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=120s --retries=3 CMD ["/opt/weir/usr/bin/weir", "info", "--quiet"]
ENTRYPOINT ["/opt/weir/usr/bin/weir-server"]

# ---- the last stage is what a build without --target makes
FROM cpu
