// A stand-in for your service: the same as app.py, on Node's own server.
//
//     node app.js 127.0.0.1:8081

'use strict';
const http = require('node:http');
const crypto = require('node:crypto');

const address = process.argv[2];
const [host, port] = address.split(':');

function reply(req, res, status, body, how = []) {
  res.statusCode = status;
  res.setHeader('x-served-by', address);
  res.setHeader('content-type', req.headers['content-type'] || 'text/plain');
  if (req.headers['x-nonce']) res.setHeader('x-nonce', req.headers['x-nonce']);
  // Two field lines of one name, to see that both arrive.
  res.setHeader('set-cookie', ['a=1', 'b=2']);
  if (status === 204 || status === 304) return res.end();
  if (how.includes('close')) {
    res.setHeader('connection', 'close');
    res.useChunkedEncodingByDefault = false;
    res.removeHeader('content-length');
    res.removeHeader('transfer-encoding');
    res.write(body.subarray(0, body.length / 2));
    return res.end(body.subarray(body.length / 2));
  }
  if (how.includes('chunked') || how.includes('trailers')) {
    res.setHeader('transfer-encoding', 'chunked');
    for (let i = 0; i < body.length; i += 10_000) res.write(body.subarray(i, i + 10_000));
    if (how.includes('trailers')) {
      res.addTrailers({ 'x-sha256': crypto.createHash('sha256').update(body).digest('hex') });
    }
    return res.end();
  }
  res.setHeader('content-length', body.length);
  return res.end(body);
}

function pairs(raw) {
  const out = [];
  for (let i = 0; i < raw.length; i += 2) out.push([raw[i], raw[i + 1]]);
  return out;
}

function handle(req, res) {
  const chunks = [];
  req.on('data', (c) => chunks.push(c));
  req.on('end', () => {
    const body = Buffer.concat(chunks);
    const [path, query = ''] = req.url.split('?');
    const [, page, arg] = path.split('/');
    switch (page) {
      case 'echo': return reply(req, res, 200, body, query.split('&'));
      case 'request': return reply(req, res, 200, Buffer.from(JSON.stringify({
        method: req.method, target: req.url, version: `HTTP/${req.httpVersion}`,
        headers: pairs(req.rawHeaders), trailers: pairs(req.rawTrailers), body: body.length,
      })));
      case 'size': return reply(req, res, 200, Buffer.alloc(Number(arg), 'x'));
      case 'status': return reply(req, res, Number(arg), Buffer.from(`status ${arg}\n`));
      case 'healthz': return reply(req, res, 200, Buffer.from('ok\n'));
      default: return reply(req, res, 404, Buffer.from('the service has no such page\n'));
    }
  });
}

http.createServer(handle).listen(Number(port), host);
