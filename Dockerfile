# The image of the broker: the binary of `bun run build:binary`, on a base with glibc and certificates only. It runs as an
# unprivileged user and writes only into /var/lib/sealpost: a broker without BROKER_KEY_FILE creates its key there.
ARG BASE=gcr.io/distroless/base-nossl-debian12
ARG TARGETARCH

FROM scratch AS amd64
COPY --chmod=755 dist/sealpost-linux-x64 /sealpost

FROM scratch AS arm64
COPY --chmod=755 dist/sealpost-linux-arm64 /sealpost

FROM ${TARGETARCH} AS binary

FROM ${BASE}
COPY LICENSE /usr/share/doc/sealpost/
COPY --from=binary /sealpost /usr/local/bin/
ENV HOST=0.0.0.0 \
    PORT=7450 \
    ADMIN_HOST=0.0.0.0 \
    ADMIN_PORT=7451
USER 65532:65532
# The user owns this folder because USER precedes it.
WORKDIR /var/lib/sealpost
VOLUME /var/lib/sealpost
# 7451 is private: metrics, health and the operators' console. Publish it nowhere.
EXPOSE 7450 7451
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s CMD ["sealpost", "broker", "--health"]
ENTRYPOINT ["sealpost"]
CMD ["broker"]
