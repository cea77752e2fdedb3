#!/usr/bin/env node
/**
 * The command `sealpost` of the npm package. It runs the program in the package for this platform, and passes on
 * arguments, streams, signals and the exit code. Old versions of Node must be able to parse this file.
 */
'use strict'
var spawn = require('child_process').spawn
var fs = require('fs')
var path = require('path')
var manifest = require('./package.json')

var platform = process.platform + '-' + process.arch
var packageName = '@sealpost/cli-' + platform
var nodeMin = Number(/\d+/.exec(manifest.engines.node)[0])

if (Number(process.versions.node.split('.')[0]) < nodeMin)
  fail('node_unsupported', 'Sealpost needs Node ' + nodeMin + ' or newer; this is Node ' + process.versions.node)
if (!manifest.optionalDependencies[packageName]) fail('platform_unsupported', 'Sealpost does not run on ' + platform)
start(findProgram())

function findProgram() {
  var found, its, program, reason
  var root = path.join(__dirname, '../..')
  try {
    found = require.resolve(packageName + '/package.json')
    its = require(found).sealpost
    program = path.join(path.dirname(found), its.program)
  } catch (_) {
    refuseMusl()
    // npm reports no error if it can't download or unpack an optional package.
    reason = packageName + ' is not installed, as npm could not unpack it or omitted optional packages'
    // Only a folder of npx belongs to sealpost alone. Another one is a project, or a global folder such as /usr/lib.
    fail('package_missing', reason + again(path.basename(path.dirname(root)) === '_npx' ? root : __dirname))
  }
  if (bytesOf(program) !== its.bytes) fail('program_damaged', program + ' is damaged' + again(path.dirname(found)))
  return program
}

function again(folder) {
  return ': remove ' + folder + ' and install sealpost again'
}

function bytesOf(file) {
  return fs.existsSync(file) ? fs.statSync(file).size : 0
}

function refuseMusl() {
  if (process.platform === 'linux' && !process.report.getReport().header.glibcVersionRuntime)
    fail('platform_unsupported', 'Sealpost needs a Linux system with glibc; this system has another C library')
}

function start(program) {
  var child = spawn(program, process.argv.slice(2), { stdio: 'inherit' })
  var signals = ['SIGINT', 'SIGTERM', 'SIGHUP']
  signals.forEach(function (signal) {
    process.on(signal, function () {
      // Windows gives Ctrl-C to the program itself, and `kill` would end the program at once.
      if (process.platform !== 'win32') child.kill(signal)
    })
  })
  if (process.env.npm_lifecycle_event === 'npx') endWithParent(child)
  child.on('error', function (error) {
    if (error.code === 'ENOENT') refuseMusl() // the program's loader is missing
    fail('program_unusable', 'The system can not run ' + program + ' (' + error.code + ')')
  })
  child.on('exit', function (code, signal) {
    if (signal === null) process.exit(code)
    if (signal === 'SIGILL') fail('platform_unsupported', 'Sealpost needs a processor with AVX2')
    process.removeAllListeners(signal)
    process.kill(process.pid, signal)
  })
}

/** `npx` forwards a signal to its shell, which ends without this process. */
function endWithParent(child) {
  var parent = process.ppid
  var timer = setInterval(function () {
    if (process.ppid === parent) return
    clearInterval(timer)
    child.kill('SIGTERM')
  }, 500)
}

/** Prints an error as the program does. */
function fail(code, sentence) {
  var isJson = process.argv.indexOf('--json') > 0
  console.error(
    isJson ? JSON.stringify({ error: { code: code, message: sentence } }) : 'error: ' + sentence + '. (' + code + ')'
  )
  process.exit(1)
}
