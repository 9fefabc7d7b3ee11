"use strict";
// A page that is opened from disk may not start a worker, and the search of the site runs in one. Here the script of
// the worker runs in a hidden frame of the page instead, with the same messages to and fro.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = frame.contentDocument.createElement("script");
      this.loaded = new Promise((ready, fail) => {
        script.onload = ready;
        script.onerror = () => fail(new Error(`${address}: cannot be loaded`));
      });
      script.src = address;
      frame.contentDocument.body.append(script);
    }

    async postMessage(data) {
      await this.loaded;
      this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }));
    }
  };
  window.Worker = window.IFrameWorker;
}
