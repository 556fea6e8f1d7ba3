// SPDX-License-Identifier: BSD-3-Clause
// Search in a site that is opened from a folder: browsers start no worker from a file: address. A hidden frame runs the
// worker's script instead, and passes messages through a port.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const { port1, port2 } = new MessageChannel();
      this.port = port1;
      port1.onmessage = ({ data }) => this.dispatchEvent(new MessageEvent("message", { data }));
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = `<!doctype html><body><script>
        addEventListener("message", ({ ports: [port] }) => {
          window.postMessage = data => port.postMessage(data);
          const script = document.createElement("script");
          script.src = ${JSON.stringify(new URL(url, location.href).href)};
          script.onload = () => {
            port.onmessage = ({ data }) => window.dispatchEvent(new MessageEvent("message", { data }));
          };
          document.body.append(script);
        }, { once: true });
      </scr${"ipt"}>`;
      frame.onload = () => frame.contentWindow.postMessage(null, "*", [port2]);
      document.body.append(frame);
    }

    postMessage(data) {
      this.port.postMessage(data);
    }

    terminate() {
      this.port.close();
    }
  };
}
