/** Extends the default theme with system fonts and the colours of the console. */
import theme from 'vitepress/theme-without-fonts'
import './style.css'

export default theme
