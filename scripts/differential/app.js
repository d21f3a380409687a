// Echoes what Node saw of a request: node app.js PORT
'use strict';
const http = require('node:http');

const hex = (text) => Buffer.from(text, 'latin1').toString('hex');

function answer(req, res, body) {
	let echo = 'early';
	if (body !== null) {
		const pairs = [`method=${hex(req.method)}`, `target=${hex(req.url)}`, `body=${body.toString('hex')}`];
		for (let i = 0; i < req.rawHeaders.length; i += 2) {
			pairs.push(`header=${hex(`${req.rawHeaders[i]}: ${req.rawHeaders[i + 1]}`)}`);
		}
		echo = pairs.join('\n');
	}
	const headers = { 'Content-Type': 'text/plain', 'Content-Length': echo.length };
	if (req.method === 'HEAD') headers['X-Echo'] = echo.replaceAll('\n', ' ');
	res.writeHead(200, headers);
	res.end(req.method === 'HEAD' ? undefined : echo);
}

http.createServer((req, res) => {
	if (req.url.startsWith('/early')) {
		answer(req, res, null);
		return;
	}
	const chunks = [];
	req.on('data', (chunk) => chunks.push(chunk));
	req.on('end', () => answer(req, res, Buffer.concat(chunks)));
}).listen(Number(process.argv[2]), '127.0.0.1');
