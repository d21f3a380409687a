// An application, and a relay in front of the sidecar at a port: node relay.mjs app|relay [PORT FILE].
// The relay writes the first word of each connection, and the form of the target, to the file.
import fs from 'node:fs'
import http from 'node:http'
import net from 'node:net'

const [, , what, port, file] = process.argv
const form = (line) => {
  const [method, target] = line.split(' ')
  return method === 'CONNECT' ? 'CONNECT' : target?.startsWith('http://') ? 'absolute-form' : 'origin-form'
}
const server = what === 'app'
  ? http.createServer((request, response) => response.end(`hello by ${request.headers['cdn-loop'] ?? 'nobody'}\n`))
  : net.createServer((client) => {
    const sidecar = net.connect(port, '127.0.0.1')
    client.once('data', (b) => fs.appendFileSync(file, form(b.toString('latin1').split('\r\n')[0]) + '\n'))
    client.on('error', () => sidecar.destroy()).pipe(sidecar)
    sidecar.on('error', () => client.destroy()).pipe(client)
  })
server.listen(0, '127.0.0.1', () => console.log(server.address().port))
