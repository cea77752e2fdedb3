/** What a command asks of its profile's peer about people with several devices. Everything travels as JSON. */
import type { Device, Peer, PeerKey } from '@sealpost/sdk'
import type { MemberOutcome } from './group-calls.ts'
import type { SendQuestion } from './peer-calls.ts'

export interface DeviceInviteQuestion {
  readonly label: string
  readonly joinByMs: number
}

export interface DeviceCalls {
  inviteDevice(question: DeviceInviteQuestion): Promise<string>
  /** Of a person; null: of this one. */
  devices(person: PeerKey | null): Promise<readonly Device[]>
  removeDevice(device: PeerKey): Promise<null>
  /** Answers when the broker has stored it for each device of the person, or refused it. */
  sendToEveryDevice(question: SendQuestion): Promise<readonly MemberOutcome[]>
  /** Answers which device has it. */
  sendToFreeDevice(question: SendQuestion): Promise<PeerKey>
}

export function deviceCallsOf({ persons }: Peer): DeviceCalls {
  return {
    inviteDevice: async ({ label, joinByMs }) => persons.inviteDevice(label, { joinByMs }),
    devices: (person) => persons.devices(person ?? undefined),
    removeDevice: async (device) => {
      await persons.removeDevice(device)
      return null
    },
    sendToEveryDevice: async ({ to, bodyBase64, priority, ttlSeconds }) => {
      const { stored } = await persons.send(to, Buffer.from(bodyBase64, 'base64'), { priority, ttlSeconds })
      return (await stored).map(({ peer, error }) => ({ peer, code: error?.code ?? null }))
    },
    sendToFreeDevice: ({ to, bodyBase64, priority, ttlSeconds }) =>
      persons.sendToFree(to, Buffer.from(bodyBase64, 'base64'), { priority, ttlSeconds }),
  }
}
