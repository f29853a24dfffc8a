// One walk through MQTT with npm's mqtt: URL LEVEL. Prints [topic, text, QoS] of what came.
"use strict";

const mqtt = require("mqtt");

const [url, level] = process.argv.slice(2);
const options = { username: "guest", password: "guest", protocolVersion: Number(level) };
const client = mqtt.connect(url, options);
const got = [];

client.on("connect", () =>
  client.subscribe("a/#", { qos: 2 }, () => {
    for (const qos of [0, 1, 2]) client.publish("a/b", `hello ${qos}`, { qos });
  }),
);
client.on("message", (topic, payload, packet) => {
  got.push([topic, payload.toString(), packet.qos]);
  if (got.length === 3) client.end(false, () => console.log(JSON.stringify(got)));
});
client.on("error", (error) => {
  console.error(error);
  process.exit(1);
});
