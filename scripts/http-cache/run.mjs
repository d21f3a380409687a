// Runs the suite in DIR against the cache at URL, and compares with the expected differences in FILE.
//
//   node run.mjs DIR URL FILE
import { readFileSync } from 'node:fs'
import { pathToFileURL } from 'node:url'

const [dir, url, file] = process.argv.slice(2)
const load = path => import(pathToFileURL(`${dir}/${path}`))
const { runTests, getResults } = await load('test-engine/client/runner.mjs')
const { default: suites } = await load('tests/index.mjs')

const expected = new Map()
for (const line of readFileSync(file, 'utf8').split('\n')) {
  const [id, ...why] = line.trim().split(/\s+/)
  if (id && !id.startsWith('#')) expected.set(id, why.join(' '))
}
await runTests(suites, false, url)
const results = getResults()
let passed = 0
let wrong = 0
for (const { tests } of suites) {
  for (const { id, kind, name } of tests) {
    const result = results[id]
    if (kind === 'check' || result === undefined) continue // a question, or for the caches of browsers
    if (result === true) passed++
    if ((result === true) === expected.has(id)) {
      wrong++
      console.log(`${id}: ${result === true ? 'passes, and is listed as a difference' : result.join(': ')} (${kind ?? 'required'}: ${name})`)
    }
  }
}
console.log(`${passed} cases pass, ${expected.size} differ as expected, ${wrong} are wrong`)
process.exit(wrong === 0 && passed > 0 ? 0 : 1)
