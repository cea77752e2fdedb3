/** Describes the frames about users: devices, key bindings and identity keys. */
export type Meanings = Readonly<Record<string, { about: string; fields: Readonly<Record<string, string>> }>>

export const USER_MEANINGS: Meanings = {
  enrolDevice: {
    about:
      "Sent instead of `auth` to become a device of a user with the user's invite, or with one of the user's device. The broker replies with `enrolled`, with `name` set to `user/label`, or with `refused`.",
    fields: {
      version: 'one of `versions` of the `hello`',
      clientNonce: 'random, for this connection only; signed',
      statement: 'see Devices; contains the mesh and the key that becomes a member',
      boxKey: 'as in `enrol`',
      boxEpoch: 'as in `enrol`',
      bindingNotAfterMs: 'as in `enrol`',
      bindingSignature: 'as in `enrol`',
      signature: 'over T("enrol"); see Devices',
    },
  },
  devices: {
    about:
      'Requests the devices of users. The broker replies with `deviceList`; while the database is unavailable, it sends no reply.',
    fields: {
      ref: 'any number except 0; repeated in the reply',
      peers: 'users or devices; a device stands for its user',
    },
  },
  deviceList: {
    about:
      'The reply to `devices`. The broker splits a long reply: all frames but the last have `ref` 0. With `ref` 0, the broker also sends it before a `directory` that contains a device or a user with devices. With `ref` 0, it also announces that a device was added or removed, to peers that looked up its user on this connection or that `watch`. Such an announcement may be lost.',
    fields: {
      ref: 'from the `devices`; 0: not a reply',
      statements: 'see Devices; verify each',
      removals: 'statements of removed devices, the last 16 of each user; verify each',
    },
  },
  removeDevice: {
    about:
      'Ends the membership of a device of this user, or of a device for which this device vouched, and of all devices for which that device vouched. The broker replies with `deviceRemoved`; while the database is unavailable, it sends no reply.',
    fields: { ref: 'any number; repeated in the reply', removal: 'see Devices' },
  },
  deviceRemoved: {
    about: 'The reply to `removeDevice`.',
    fields: {
      ref: 'from the `removeDevice`',
      outcome:
        '`done`: removed, now or earlier; `malformed`: not a valid removal, or not signed by the peer that sent it; `unknown_device`: it was never a device of this user, or this device did not vouch for it',
    },
  },
  succeed: {
    about:
      'Replaces the identity key of this connection with a new one. The broker replies with `succeeded`; while the database is unavailable, it sends no reply. After `done` the connection ends with `superseded`.',
    fields: {
      ref: 'any number; repeated in the reply',
      statement: 'see Rotation of the identity key',
      boxKey: 'the X25519 key of the new identity',
      boxEpoch: 'higher than the epoch of the previous binding',
      bindingNotAfterMs: 'as in `directory`',
      bindingSignature: 'the signature of the key binding, made with the new identity key',
    },
  },
  succeeded: {
    about: 'The reply to `succeed`.',
    fields: {
      ref: 'from the `succeed`',
      outcome:
        "`malformed`: one of the two signatures is invalid, or the statement is for another mesh or for a key other than the connection's; `key_taken`: the new key is, or was, a member; `bad_binding`: as in `bound`, or its epoch is not higher",
    },
  },
  successions: {
    about:
      'The broker sends `successions` before the `directory` that answers a `lookup` of the old or the new identity key. It also sends `successions` unprompted, as an announcement, to peers that looked up the old key on this connection or that `watch`.',
    fields: { statements: 'see Rotation of the identity key; verify each' },
  },
  bind: {
    about:
      "Replaces this peer's key binding. The broker replies with `bound`; while the database is unavailable, it sends no reply.",
    fields: {
      ref: 'any number; repeated in the reply',
      boxKey: 'the new X25519 key',
      boxEpoch:
        'higher than the epoch of the previous binding, and below 2^31; or the same, to extend the binding of the same key',
      notAfterMs: 'as in `directory`',
      signature: 'see Key binding',
    },
  },
  bound: {
    about: 'The reply to `bind`.',
    fields: {
      ref: 'from the `bind`',
      outcome:
        '`done`: stored, now or earlier; `stale_epoch`: the epoch is not higher, and the key is not the current one; `bad_binding`: the signature is invalid, the binding has expired, or the epoch is too high',
    },
  },
  lookupHistory: {
    about:
      'Requests all key bindings of one peer. The broker replies with `keyHistory`; while the database is unavailable, it sends no reply.',
    fields: { ref: 'any number; repeated in the reply', peer: 'the peer' },
  },
  keyHistory: {
    about: 'The reply to `lookupHistory`.',
    fields: {
      ref: 'from the `lookupHistory`',
      bindings: 'the current binding, then former ones, newest first; empty if the peer is not a member',
      'bindings.peer': 'the peer',
      'bindings.boxKey': 'as in `directory`',
      'bindings.boxEpoch': 'as in `directory`',
      'bindings.notAfterMs': 'as in `directory`',
      'bindings.signature': 'as in `directory`',
    },
  },
  rebound: {
    about:
      'Announces that these peers have new box keys. The broker sends this hint, which may be lost, to peers that looked up the former key on this connection or that `watch`.',
    fields: { peers: 'the peers to look up again' },
  },
}
