// A program that knows nothing of Remora: client.js SUFFIX CALLS; see client.py.
'use strict';
const http = require('http');
const net = require('net');

const SIZE = 3 << 20;
const [suffix, calls] = [process.argv[2], Number(process.argv[3])];
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });

function expect(got, want) {
  if (got !== want) throw new Error(`${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
}

function get(host, port) {
  return new Promise((resolve, reject) => {
    const request = http.get({ host: host + suffix, port, path: '/work', agent, timeout: 60000 }, (answer) => {
      let body = '';
      answer.on('data', (part) => { body += part; });
      answer.on('end', () => resolve({ status: answer.statusCode, body }));
    });
    request.on('timeout', () => request.destroy(new Error('no answer')));
    request.on('error', reject);
  });
}

// talk says each of what in turn, after as many lines as came of those before it,
// and closes its side at the end; it returns all that it heard.
function talk(host, port, what, speaksFirst) {
  return new Promise((resolve, reject) => {
    const socket = net.connect({ host: host + suffix, port, allowHalfOpen: true });
    let heard = '';
    let said = 0;
    const say = () => {
      while (said < what.length && heard.split('\n').length - 1 >= said + (speaksFirst ? 1 : 0)) {
        socket.write(what[said]);
        said += 1;
        if (said === what.length) socket.end();
      }
    };
    socket.setTimeout(60000, () => socket.destroy(new Error(`silence after ${heard}`)));
    socket.on('connect', say);
    socket.on('data', (part) => { heard += part; say(); });
    socket.on('end', () => resolve(heard));
    socket.on('error', reject);
  });
}

const checks = {
  'HTTP to a service': async () => {
    for (let i = 0; i < calls; i += 1) {
      const { status, body } = await get('compute', 8080);
      expect(`${status} ${body.slice(0, 8)}`, '200 replica ');
    }
  },
  'HTTP to an unknown host': async () => {
    for (let i = 0; i < 2; i += 1) {
      const { status, body } = await get('other', 8081);
      expect(status, 200);
      expect(/^(cdn-loop|x-request-id|x-forwarded-for):/im.test(body), false);
    }
  },
  Redis: async () => {
    const heard = await talk('store', 6379, ['PING\r\n', `SET node${suffix} 1\r\n`, `INCR node${suffix}\r\n`], false);
    expect(heard, '+PONG\r\n+OK\r\n:2\r\n');
  },
  'half-close': async () => {
    expect(await talk('lines', 7001, ['hello\r\n', 'x'.repeat(SIZE)], false), `+hello\r\n:${SIZE + 7}\r\n`);
  },
  'half-close at once': async () => expect(await talk('lines', 7001, ['GET'], false), ':3\r\n'),
  'a server that speaks first': async () => {
    expect(await talk('greeter', 7002, ['EHLO me\r\n'], true), '220 ready\r\n250 EHLO me\r\n');
  },
};

(async () => {
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check();
      console.log('ok', name);
    } catch (e) {
      console.log('FAIL', name, e.message);
    }
  }
  agent.destroy();
})();
