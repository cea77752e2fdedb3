/**
 * Builds the messages of a query in a reused buffer, and sends them in one write. The driver creates up to three
 * objects per message and copies all rows.
 */
import type { Duplex } from 'node:stream'

export type ParameterValue = Uint8Array | string

const PARSE = 0x50
const CLOSE = 0x43
const BIND = 0x42
const EXECUTE = 0x45
const COPY_DATA = 0x64
const COPY_DONE = 0x63
const SYNC = 0x53

const UTF8_BYTES_MAX = 3

export class RequestBuffer {
  #bytes = Buffer.allocUnsafeSlow(16 * 1024)
  #at = 0

  parse(name: string, text: string): void {
    const start = this.#begin(PARSE)
    this.#cString(name)
    this.#cString(text)
    this.#int16(0) // no parameter types
    this.#end(start)
  }

  close(name: string): void {
    const start = this.#begin(CLOSE)
    this.#cString(`S${name}`)
    this.#end(start)
  }

  /** Binds parameters: bytes in binary, strings in text format. `isBinary` chooses the result format. */
  bind(statement: string, values: readonly ParameterValue[], { isBinary }: { isBinary: boolean }): void {
    const start = this.#begin(BIND)
    this.#cString('') // the unnamed portal
    this.#cString(statement)
    this.#int16(values.length)
    for (const value of values) this.#int16(typeof value === 'string' ? 0 : 1)
    this.#int16(values.length)
    for (const value of values) this.#value(value)
    this.#int16(1)
    this.#int16(isBinary ? 1 : 0)
    this.#end(start)
  }

  /** Binds parameters that are all binary. The result is in text format. */
  bindPacked(statement: string, { count, bytes }: { readonly count: number; readonly bytes: Uint8Array }): void {
    const start = this.#begin(BIND)
    this.#cString('') // the unnamed portal
    this.#cString(statement)
    this.#int16(1) // one format code for all parameters
    this.#int16(1)
    this.#int16(count)
    this.#set(bytes)
    this.#int16(0) // result columns in text format
    this.#end(start)
  }

  execute(): void {
    const start = this.#begin(EXECUTE)
    this.#cString('')
    this.#int32(0) // all rows
    this.#end(start)
  }

  copyIn(rows: Uint8Array): void {
    const start = this.#begin(COPY_DATA)
    this.#set(rows)
    this.#end(start)
    this.#end(this.#begin(COPY_DONE))
  }

  /** Sends the messages since the last call, and a Sync. The buffer is reusable once the server replies. */
  send(stream: Duplex): void {
    this.#end(this.#begin(SYNC))
    const request = this.#bytes.subarray(0, this.#at)
    this.#at = 0
    if (stream.writable) stream.write(request)
  }

  /** Starts a message. Returns the offset of its length. */
  #begin(kind: number): number {
    this.#room(5)[this.#at] = kind
    this.#at += 5
    return this.#at - 4
  }
  #end(start: number): void {
    this.#bytes.writeInt32BE(this.#at - start, start)
  }

  #value(value: ParameterValue): void {
    const start = this.#at
    this.#int32(0)
    if (typeof value === 'string') this.#text(value)
    else this.#set(value)
    this.#bytes.writeInt32BE(this.#at - start - 4, start)
  }
  #cString(text: string): void {
    this.#text(text)
    this.#room(1)[this.#at++] = 0
  }
  #text(text: string): void {
    this.#at += this.#room(text.length * UTF8_BYTES_MAX).write(text, this.#at, 'utf8')
  }
  #set(bytes: Uint8Array): void {
    this.#room(bytes.length).set(bytes, this.#at)
    this.#at += bytes.length
  }
  #int16(value: number): void {
    this.#at = this.#room(2).writeInt16BE(value, this.#at)
  }
  #int32(value: number): void {
    this.#at = this.#room(4).writeInt32BE(value, this.#at)
  }

  #room(length: number): Buffer {
    if (this.#at + length > this.#bytes.length) {
      const grown = Buffer.allocUnsafeSlow(Math.max(this.#at + length, this.#bytes.length * 2))
      grown.set(this.#bytes.subarray(0, this.#at))
      this.#bytes = grown
    }
    return this.#bytes
  }
}
