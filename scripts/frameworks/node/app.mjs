// Express and Fastify, for scripts/frameworks.sh: node app.mjs express | fastify
import express from "express";
import fastify from "fastify";

const { NAME, PORT, IDLE } = process.env;
const keepAliveTimeout = IDLE * 1000;

if (process.argv[2] === "express") {
  const app = express();
  app.use(express.json());
  app.get("/", (_, response) => response.send(`${NAME}\n`));
  app.post("/orders", (request, response) => response.json({ name: NAME, order: request.body }));
  app.listen(PORT, "127.0.0.1").keepAliveTimeout = keepAliveTimeout;
} else {
  const app = fastify({ keepAliveTimeout });
  app.get("/", () => `${NAME}\n`);
  app.post("/orders", (request) => ({ name: NAME, order: request.body }));
  await app.listen({ port: Number(PORT), host: "127.0.0.1" });
}
