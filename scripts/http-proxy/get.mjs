// Node's clients: node get.mjs fetch|http|undici|axios URL. Prints the body.
const [, , client, url] = process.argv
switch (client) {
  case 'undici': {
    const { EnvHttpProxyAgent, fetch } = await import('undici')
    console.log(await (await fetch(url, { dispatcher: new EnvHttpProxyAgent() })).text())
    break
  }
  case 'axios':
    console.log((await (await import('axios')).default.get(url)).data)
    break
  case 'http': {
    const http = await import('node:http')
    http.get(url, (r) => r.pipe(process.stdout)).on('error', () => process.exit(1))
    break
  }
  default:
    console.log(await (await fetch(url)).text())
}
