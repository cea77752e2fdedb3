/** What the frames of persons mean: their devices, and the identity keys they turn to. */
export type Meanings = Readonly<Record<string, { about: string; fields: Readonly<Record<string, string>> }>>

export const PERSON_MEANINGS: Meanings = {
  enrolDevice: {
    about:
      'In the place of `auth`, to become a device of a person by its invite. Answered by `enrolled`, whose name is `person/label`, or refused.',
    fields: {
      version: 'one of `versions` of the `hello`',
      clientNonce: 'random, for this connection only; signed',
      statement: 'see Devices; it names the mesh and the key that becomes a member',
      boxKey: 'as in `enrol`',
      boxEpoch: 'as there',
      bindingNotAfterMs: 'as there',
      bindingSignature: 'as there',
      signature: 'over T("enrol"), see Devices',
    },
  },
  devices: {
    about: 'Asks for the devices of persons. Answered by `deviceList`, or by nothing while the database is away.',
    fields: {
      ref: 'any number but 0; the answer says it',
      peers: 'persons, or devices, which stand for their persons',
    },
  },
  deviceList: {
    about:
      'The answer to `devices`. With `ref` 0 it comes before a `directory` that has a device or a person with devices in it, and as the news that a device came or went, for those that asked for its person in this session, or `watch`. Such news may be lost.',
    fields: {
      ref: 'of the `devices`; 0: nobody asked',
      statements: 'see Devices; check each',
      removals: 'of devices that were removed, the last 16 of each person; check each',
    },
  },
  removeDevice: {
    about: 'Ends the membership of a device of this person. Answered by `deviceRemoved`, or by nothing, as above.',
    fields: { ref: 'any number; the answer says it', removal: 'see Devices' },
  },
  deviceRemoved: {
    about: 'The answer to `removeDevice`.',
    fields: {
      ref: 'of the `removeDevice`',
      outcome:
        '`done`, also when it was removed before; `malformed`: it is none, or not signed by the peer that says it; `unknown_device`: it never was a device of this person',
    },
  },
  succeed: {
    about:
      'Puts a new identity key in the place of the one of this session. Answered by `succeeded`, or by nothing, as above; when it is done the session ends with `superseded`.',
    fields: {
      ref: 'any number; the answer says it',
      statement: 'see Rotation of the identity key',
      boxKey: 'the X25519 key of the new identity',
      boxEpoch: 'higher than that of the former binding',
      bindingNotAfterMs: 'as in a `directory`',
      bindingSignature: 'of the key binding, by the new identity key',
    },
  },
  succeeded: {
    about: 'The answer to `succeed`.',
    fields: {
      ref: 'of the `succeed`',
      outcome:
        '`malformed`: one of the two signatures fails, or it is of another mesh or another key than that of the session; `key_taken`: the new key is, or was, a member; `bad_binding`: as in `bound`, or its epoch is not higher',
    },
  },
  successions: {
    about:
      'Comes before a `directory` that was asked about a former or a new identity key, and as news, as `deviceList` does.',
    fields: { statements: 'see Rotation of the identity key; check each' },
  },
}
