/** Extends the default theme with system fonts and the console's colours. */
import theme from 'vitepress/theme-without-fonts'
import './style.css'

export default theme
