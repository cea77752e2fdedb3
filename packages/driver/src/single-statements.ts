/** Runs the statements outside the loops: a call of the queue or the request services, then one of the engine. */
import { type Engine, type EngineLimits, type Lookup, type Request, replyFrom, type SocketId } from '@sealpost/core'
import type { DeliveryRef, FrameOf, SenderBacklog, SessionRef, Settle } from '@sealpost/protocol'
import { Batcher, type Queue, type RecipientRef } from '@sealpost/queue'
import type { DeliveryId, MeshId, Millis, PeerNo } from '@sealpost/std'
import type { Failures } from './background.ts'
import type { Clock, Prover, RequestServices } from './ports.ts'

type SessionChecks = Parameters<Engine['validity']['checked']>[0]

const FENCE_RETRY_MS: Millis = 500
/** The maximum number of recipients per measurement. A full mailbox has 10,000 rows. */
const MEASURED_MAX = 16

export interface SingleStatementPorts {
  readonly engine: Engine
  readonly clock: Clock
  readonly queue: Queue
  readonly requests: RequestServices
  readonly failures: Failures
  step(decide: () => void): void
  isConnected(socket: SocketId): boolean
  /** Opens a session once the statements of the peer's former session have completed. */
  before<T>(session: SessionRef, open: () => Promise<T>): Promise<T>
}

export class SingleStatements {
  readonly #ports: SingleStatementPorts
  readonly #limits: Pick<EngineLimits, 'mailbox' | 'mesh'>
  readonly #measures: Batcher<RecipientRef, SenderBacklog[]>

  constructor(ports: SingleStatementPorts, limits: Pick<EngineLimits, 'mailbox' | 'mesh'>) {
    this.#ports = ports
    this.#limits = limits
    const countMax = (limits.mailbox?.countMax ?? 0) + 1
    this.#measures = new Batcher((recipients) => ports.queue.measure(recipients, countMax), { max: MEASURED_MAX })
  }

  authenticate(socket: SocketId, prover: Prover, hello: FrameOf<'hello'>, auth: FrameOf<'auth'>): void {
    const { engine, requests } = this.#ports
    this.#run(
      'authenticate',
      requests.authenticate(prover, hello, auth),
      (found) => engine.authenticated(socket, found),
      () => engine.authenticated(socket, null),
    )
  }

  enrol(socket: SocketId, authority: string, hello: FrameOf<'hello'>, enrol: FrameOf<'enrol' | 'enrolDevice'>): void {
    const { engine, requests } = this.#ports
    this.#run(
      'enrol',
      requests.enrol(authority, hello, enrol),
      (enrolment) => engine.enrolled(socket, enrolment),
      () => engine.enrolled(socket, null),
    )
  }

  open(socket: SocketId, session: SessionRef): void {
    const { engine, queue, before } = this.#ports
    this.#run(
      'open',
      before(session, () => queue.open(session)),
      (epoch) => engine.opened(socket, epoch),
      () => engine.opened(socket, null),
    )
  }

  /**
   * Repeats the statement until it succeeds or the connection ends, because without a fence the session receives no
   * more mail.
   */
  fence(socket: SocketId, session: SessionRef): void {
    const { engine, clock, queue, isConnected } = this.#ports
    const again = () => void clock.after(FENCE_RETRY_MS, () => isConnected(socket) && this.fence(socket, session))
    this.#run('fence', queue.fence(session), (epoch) => engine.fenced(socket, epoch), again)
  }

  checkSessions(checks: SessionChecks): void {
    const { engine, queue } = this.#ports
    const sessions = checks.map(({ session }) => session)
    this.#run('checkSessions', queue.checkSessions(sessions), (statuses) => engine.validity.checked(checks, statuses))
  }

  notifyPushed(deliveries: readonly Settle[]): void {
    const { engine, queue } = this.#ports
    this.#run('notifyPushed', queue.notifyPushed(deliveries), () => engine.receiptsCommitted(deliveries))
  }

  forgetLost({ meshId, peer }: RecipientRef, ids: readonly DeliveryId[]): void {
    this.#run('lostReported', this.#ports.queue.lostReported(meshId, peer, ids))
  }

  failAttempt(delivery: DeliveryRef): void {
    this.#run('countFailedAttempt', this.#ports.queue.countFailedAttempt(delivery))
  }

  measure(meshId: MeshId, scope: PeerNo | 'mesh'): void {
    const { engine, queue } = this.#ports
    const measured = (found: SenderBacklog[] | null) => engine.measured(meshId, scope, found)
    const countMax = (this.#limits.mesh?.countMax ?? 0) + 1
    const statement =
      scope === 'mesh' ? queue.measureMesh(meshId, countMax) : this.#measures.add({ meshId, peer: scope })
    this.#run('measure', statement, measured, () => measured(null))
  }

  resolve(socket: SocketId, meshId: MeshId, sought: Lookup): void {
    const { engine, requests } = this.#ports
    const asked = [...sought.peers, ...sought.pools]
    this.#run(
      'resolve',
      requests.resolve(meshId, sought),
      ({ members, groups, successors, pools, spaces }) =>
        engine.resolved(socket, asked, members, groups, successors, pools, spaces),
      () => engine.resolved(socket, asked, null),
    )
  }

  request(request: Request): void {
    const { engine, requests } = this.#ports
    this.#run(request.frame.type, replyFrom(requests.table, request), (reply) => {
      if (reply !== null) engine.replied(request, reply)
    })
  }

  #run<T>(event: string, statement: Promise<T>, done?: (result: T) => void, failed?: () => void): void {
    const { failures, step } = this.#ports
    failures.start(
      statement.then(
        (result) => done && step(() => done(result)),
        (error) => {
          failures.report(`${event}.failed`, error)
          if (failed) step(failed)
        },
      ),
    )
  }
}
