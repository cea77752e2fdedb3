# The image of the broker: the file that `bun run build:binary` writes, on a base with glibc and certificates only. It runs as
# an unprivileged user and writes only into /var/lib/sealpost: a broker without BROKER_KEY_FILE creates its key there.
ARG BASE=gcr.io/distroless/base-nossl-debian12
FROM ${BASE}
# For ARM: --build-arg BINARY=dist/sealpost-linux-arm64
ARG BINARY=dist/sealpost-linux-x64
COPY LICENSE /usr/share/doc/sealpost/
COPY --chmod=755 ${BINARY} /usr/local/bin/sealpost
ENV HOST=0.0.0.0 \
    PORT=7450 \
    ADMIN_HOST=0.0.0.0 \
    ADMIN_PORT=7451
USER 65532:65532
# The user above owns the folder, because this line follows.
WORKDIR /var/lib/sealpost
VOLUME /var/lib/sealpost
# 7451 is private: metrics, health and the operators' console. Publish it nowhere.
EXPOSE 7450 7451
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s CMD ["sealpost", "broker", "--health"]
ENTRYPOINT ["sealpost"]
CMD ["broker"]
