import { render } from 'preact'
import { type Screen, start } from './app.ts'
import { keepPage } from './keep-page.ts'
import { ScreenView } from './screens.tsx'

const root = document.querySelector('#app')!
const show = (screen: Screen) => render(<ScreenView screen={screen} />, root)

void start(show)
void keepPage()
