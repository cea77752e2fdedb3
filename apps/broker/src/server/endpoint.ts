/** How the broker's WebSocket behaves below the frames, in one place, so that a conformance test runs on nothing else. */
import { FRAME_BYTES_MAX } from '@sealpost/protocol'

const IDLE_SECONDS = 120 // a second net under the engine's own heartbeat

/** For Bun's server. `backpressureBytes`: what a socket that is never read may hold. */
export const endpointSettings = (backpressureBytes: number) => ({
  perMessageDeflate: false, // an envelope is ciphertext, which gains nothing, and a bomb would have something to burst
  maxPayloadLength: FRAME_BYTES_MAX,
  backpressureLimit: backpressureBytes,
  closeOnBackpressureLimit: true,
  idleTimeout: IDLE_SECONDS,
  sendPings: false,
})
