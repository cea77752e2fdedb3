/**
 * Answers that several may share. Who asks for one while it is being made gets the next, together with all others who do: it
 * is begun after they have asked, so that nobody is told what was before. So fifty who open a conversation at once cost two
 * readings.
 */
export class SharedReads<T> {
  readonly #rounds = new Map<string, Round<T>>()

  /** `make` of the same name makes the same answer. Rejects as it does. */
  read(name: string, make: () => Promise<T>): Promise<T> {
    const round = this.#rounds.get(name)
    if (!round) return this.#begin(name, make)
    round.next ??= round.over.then(() => this.#begin(name, make))
    return round.next
  }

  /** Names of answers that are being made. */
  get size(): number {
    return this.#rounds.size
  }

  #begin(name: string, make: () => Promise<T>): Promise<T> {
    const made = make()
    const over = made.then(nothing, nothing)
    const round: Round<T> = { over, next: undefined }
    this.#rounds.set(name, round)
    void over.then(() => {
      if (!round.next) this.#rounds.delete(name)
    })
    return made
  }
}

interface Round<T> {
  /** Whatever became of it. */
  readonly over: Promise<void>
  next: Promise<T> | undefined
}

const nothing = () => undefined
