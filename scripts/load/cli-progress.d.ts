/** The part of cli-progress that is used here; the package brings no types. */
declare module 'cli-progress' {
  export interface BarOptions {
    format?: string
    stream?: NodeJS.WritableStream
    barsize?: number
    hideCursor?: boolean
    clearOnComplete?: boolean
    fps?: number
    etaBuffer?: number
  }
  export class SingleBar {
    constructor(options: BarOptions, preset?: object)
    start(total: number, value: number, payload?: object): void
    update(value: number, payload?: object): void
    stop(): void
  }
  const exported: { SingleBar: typeof SingleBar; Presets: { shades_classic: object } }
  export default exported
}
