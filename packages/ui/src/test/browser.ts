/** Starts Chromium for tests, with users in separate windows and storage. */
import { existsSync } from 'node:fs'
import { type Browser, chromium, type Locator, type Page } from 'playwright-core'

const PLACES = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome']
/** The path of Chromium, if it is installed. */
export const chromiumPath: string | null = PLACES.find((path) => existsSync(path)) ?? null

export async function openBrowser(): Promise<Browser> {
  const isRoot = process.getuid?.() === 0
  return chromium.launch({ executablePath: chromiumPath!, args: isRoot ? ['--no-sandbox'] : [] })
}

/** Matches the browser's messages about an unavailable broker. */
const IS_AWAY = /^WebSocket connection to \S+ failed|ERR_CONNECTION_REFUSED/

const OWN_NAMES = ['127.0.0.1', 'localhost']

export class Person {
  readonly page: Page
  /** Errors, warnings, violations of the content security policy, and requests to other servers. */
  readonly complaints: string[] = []

  private constructor(page: Page) {
    this.page = page
    page.on('console', (message) => {
      const isBad = message.type() === 'error' || message.type() === 'warning'
      if (isBad && !IS_AWAY.test(message.text())) this.complaints.push(message.text())
    })
    page.on('pageerror', (error) => this.complaints.push(String(error)))
    page.on('request', (request) => {
      if (!OWN_NAMES.includes(new URL(request.url()).hostname)) this.complaints.push(`asked for ${request.url()}`)
    })
  }

  static async open(browser: Browser, options: Parameters<Browser['newContext']>[0] = {}): Promise<Person> {
    const context = await browser.newContext({ locale: 'en-GB', ...options })
    context.setDefaultTimeout(60_000)
    return new Person(await context.newPage())
  }

  async join(link: string, name: string): Promise<void> {
    await this.page.goto(link)
    await this.page.getByLabel('Your name').fill(name)
    await this.page.getByRole('button', { name: 'Join' }).click()
    await this.online()
  }

  async online(): Promise<void> {
    await this.page.locator('.dot[data-link=online]').waitFor({ state: 'attached' })
  }
  async away(): Promise<void> {
    await this.page.locator('.dot[data-link=away]').waitFor({ state: 'attached' })
  }

  async select(name: string): Promise<void> {
    await this.row(name).click()
    await this.page.getByRole('heading', { name }).waitFor()
  }

  row(name: string): Locator {
    // Not the sessions of the member, which are named `name/label`.
    const own = new RegExp(`^${RegExp.escape(name)}(?!/)`)
    return this.page.getByRole('navigation', { name: 'Members' }).getByRole('button', { name: own })
  }

  async say(text: string): Promise<void> {
    const field = this.page.getByRole('textbox', { name: /^Message to / })
    await field.fill(text)
    await field.press('Enter')
  }

  /** Resolves once `count` sent lines have this fate. */
  async fate(fate: 'waiting' | 'stored', count: number): Promise<void> {
    await this.page
      .locator(`.fate[data-fate=${fate}]`)
      .nth(count - 1)
      .waitFor()
  }

  async reads(text: string): Promise<void> {
    await this.page.locator('.line p', { hasText: text }).last().waitFor()
  }

  lines(kind: 'received' | 'written'): Promise<string[]> {
    return this.page.locator(`.line[data-kind=${kind}] p`).allTextContents()
  }
}
