# The broker, and beside it the command `sealpost`. It runs as nobody special, and writes nothing but the broker's key,
# into /var/lib/sealpost, unless BROKER_KEY_FILE names a mounted one. See docs/deploy/README.md.
ARG BUN_VERSION=1.4.5

FROM oven/bun:${BUN_VERSION}-slim AS build
WORKDIR /app
# Only manifests first, so that a change of the sources does not install anew.
COPY package.json bun.lock bunfig.toml ./
COPY apps/bench/package.json apps/bench/
COPY apps/broker/package.json apps/broker/
COPY apps/cli/package.json apps/cli/
COPY apps/docs/package.json apps/docs/
COPY apps/drills/package.json apps/drills/
COPY apps/loadtest/package.json apps/loadtest/
COPY apps/torture/package.json apps/torture/
COPY packages/broker-program/package.json packages/broker-program/
COPY packages/bus/package.json packages/bus/
COPY packages/console/package.json packages/console/
COPY packages/core/package.json packages/core/
COPY packages/demo/package.json packages/demo/
COPY packages/driver/package.json packages/driver/
COPY packages/embedded-pg/package.json packages/embedded-pg/
COPY packages/harness/package.json packages/harness/
COPY packages/history/package.json packages/history/
COPY packages/identity/package.json packages/identity/
COPY packages/mesh-move/package.json packages/mesh-move/
COPY packages/operator/package.json packages/operator/
COPY packages/pg/package.json packages/pg/
COPY packages/protocol/package.json packages/protocol/
COPY packages/queue/package.json packages/queue/
COPY packages/replay/package.json packages/replay/
COPY packages/schema/package.json packages/schema/
COPY packages/sdk/package.json packages/sdk/
COPY packages/sim/package.json packages/sim/
COPY packages/std/package.json packages/std/
COPY packages/store/package.json packages/store/
COPY packages/ui/package.json packages/ui/
# Without what is optional: the embedded PostgreSQL has no place here.
RUN bun install --frozen-lockfile --production --omit=optional --filter @sealpost/broker --filter @sealpost/cli
COPY tsconfig.base.json LICENSE ./
COPY apps apps
COPY packages packages

# The console's page is made here: in the image nothing can be written, and Vite has no place there.
FROM build AS console
RUN bun install --frozen-lockfile --filter @sealpost/console && bun packages/console/src/build.ts

FROM oven/bun:${BUN_VERSION}-slim
COPY --from=build /app /app
COPY --from=console /app/packages/console/dist /app/packages/console/dist
RUN ln -s /app/apps/cli/src/main.ts /usr/local/bin/sealpost \
 && mkdir /var/lib/sealpost && chown bun:bun /var/lib/sealpost
ENV NODE_ENV=production \
    HOST=0.0.0.0 \
    PORT=7450 \
    ADMIN_HOST=0.0.0.0 \
    ADMIN_PORT=7451
USER bun
WORKDIR /var/lib/sealpost
VOLUME /var/lib/sealpost
# 7451 is private: metrics, health and the operators' console. Publish it nowhere.
EXPOSE 7450 7451
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s \
  CMD ["bun", "-e", "process.exit((await fetch(`http://127.0.0.1:${process.env.ADMIN_PORT}/readyz`)).ok ? 0 : 1)"]
ENTRYPOINT ["bun", "/app/apps/broker/src/main.ts"]
