import { toHex } from '@sealpost/std'
import { encodeBinary, encodeJson, type Form } from '../src/index.ts'
import { type RefusedSample, refusedSamples, samples } from './samples.ts'

export interface FrameVectors {
  readonly about: string
  readonly frames: readonly { name: string; from: 'client' | 'server'; json: { type: string }; binary: string }[]
  readonly refused: readonly RefusedSample[]
}

const ABOUT =
  'Each of `frames` in both forms: `json` in the order of its keys and without spaces is the text, `binary` is hex. ' +
  'Each of `refused` comes in on a connection of `form`, as `text` or as the bytes of `hex`, and is refused with `code`.'

function frameVectors(): FrameVectors {
  const frames = samples.map(({ name, from, frame }) => ({
    name,
    from,
    json: JSON.parse(encodeJson(frame)) as { type: string },
    binary: toHex(encodeBinary(frame)),
  }))
  return { about: ABOUT, frames, refused: refusedSamples }
}

export function vectorsText(): string {
  const { about, frames, refused } = frameVectors()
  const lines = (items: readonly object[]) => items.map((item) => `    ${JSON.stringify(item)}`).join(',\n')
  return `{
  "about": ${JSON.stringify(about)},
  "frames": [\n${lines(frames)}\n  ],
  "refused": [\n${lines(refused)}\n  ]
}
`
}

export function wireOf(sample: { form: Form; text?: string; hex?: string }): string | Uint8Array {
  return sample.text ?? Uint8Array.from(sample.hex!.match(/../g) ?? [], (byte) => Number.parseInt(byte, 16))
}
