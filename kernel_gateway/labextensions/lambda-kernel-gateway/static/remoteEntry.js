// JupyterLab forgets, when its page is loaded again, which cells it had sent: outputs of a cell that
// still runs, and of those that ended while no page was open, reach the new page but no cell. This
// asks the kernel (`cells_request`, a message of its own) which cells those are, and what they said.
//
// Written by hand as the module container that JupyterLab loads, so that nothing has to be built.
(() => {
  "use strict";

  const IMPLEMENTATION = "lambda-kernel-gateway";
  const LAST_COUNT = 20;

  /** What an output area needs of a request that another page has sent. */
  class Followed {
    constructor(kernel, model, told) {
      this.msg = { header: { msg_id: told.msg_id }, content: { code: told.code }, channel: "shell" };
      this.isDisposed = false;
      this.onIOPub = this.onReply = this.onStdin = () => {};
      this.done = new Promise((resolve) => (this._resolve = resolve));
      this._kernel = kernel;
      this._model = model;
      this._count = null;
      this._shown = new Set();
    }

    take(message) {
      const type = message.header.msg_type;
      if (this.isDisposed || this._model.isDisposed) {
        this.dispose();
      } else if (type === "input_request") {
        this._ask(message);
      } else {
        if (type === "execute_input") {
          this._count = message.content.execution_count;
        }
        this.onIOPub(message);
        if (type === "status" && message.content.execution_state === "idle") {
          this.end(this._count);
        }
      }
    }

    end(count) {
      this._model.executionCount = count;
      this._model.executionState = "idle";
      this._stop();
    }

    sendInputReply(content, parentHeader) {
      this._kernel.sendInputReply(content, parentHeader);
    }

    registerMessageHook() {}

    removeMessageHook() {}

    dispose() {
      this.isDisposed = true;
      this._stop();
    }

    // A question is asked again whenever a client may have missed it.
    _ask(message) {
      if (!this._shown.has(message.header.msg_id)) {
        this._shown.add(message.header.msg_id);
        this._kernel.hasPendingInput = true;
        this.onStdin(message);
      }
    }

    _stop() {
      this.onEnd?.();
      this._resolve();
    }
  }

  /** Gives messages of followed requests to their cells, as long as there are any. */
  class Follower {
    constructor(kernel) {
      this._kernel = kernel;
      this._followed = new Map();
      this._questions = new Map();
      kernel.iopubMessage.connect(this._onIOPub, this);
      kernel.anyMessage.connect(this._onAny, this);
    }

    follow(future) {
      const id = future.msg.header.msg_id;
      this._followed.set(id, future);
      future.onEnd = () => {
        this._followed.delete(id);
        this.restIfIdle();
      };
      if (this._questions.has(id)) {
        future.take(this._questions.get(id));
      }
    }

    restIfIdle() {
      if (this._followed.size === 0) {
        this._kernel.iopubMessage.disconnect(this._onIOPub, this);
        this._kernel.anyMessage.disconnect(this._onAny, this);
      }
    }

    _onIOPub(_, message) {
      this._followed.get(message.parent_header.msg_id)?.take(message);
    }

    _onAny(_, { msg, direction }) {
      if (direction === "recv" && msg.channel === "stdin") {
        this._questions.set(msg.parent_header.msg_id, msg);
        this._followed.get(msg.parent_header.msg_id)?.take(msg);
      }
    }
  }

  function request(kernel) {
    return {
      header: {
        msg_id: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`,
        msg_type: "cells_request",
        username: kernel.username,
        session: kernel.clientId,
        date: new Date().toISOString(),
        version: "5.4",
      },
      parent_header: {},
      metadata: {},
      content: { last: LAST_COUNT },
      channel: "control",
      buffers: [],
    };
  }

  /** Whether the notebook, as it was read, lacks what this cell said. */
  function isMissed(told, cell, savedAt) {
    if (cell?.model.type !== "code" || cell.model.executionState === "running") {
      return false;
    }
    if (cell.model.sharedModel.getSource() !== told.code) {
      return false;
    }
    const isOpen = told.status === "running" || told.status === "queued";
    return isOpen || (told.finished > savedAt && cell.model.executionCount !== told.execution_count);
  }

  function leftOut(told) {
    const text =
      `[gateway] ${told.left_out_count} earlier messages of this cell are too much to be shown ` +
      "again: `kernel-gateway cells` has what was kept\n";
    return { header: { msg_type: "stream" }, metadata: {}, content: { name: "stderr", text } };
  }

  function show(told, cell, kernel, follower) {
    const { model } = cell;
    const future = new Followed(kernel, model, told);
    model.clearExecution();
    cell.outputHidden = false;
    model.executionState = "running";
    model.trusted = true;
    cell.outputArea.future = future;
    if (told.left_out_count) {
      future.take(leftOut(told));
    }
    follower.follow(future);
    told.messages.forEach((message) => future.take(message));
    if (told.finished) {
      future.end(told.execution_count);
    }
  }

  async function catchUp(panel, kernel) {
    await panel.context.ready;
    const info = await kernel.info;
    if (info.implementation !== IMPLEMENTATION || panel.isDisposed || kernel.isDisposed) {
      return;
    }
    const savedAt = new Date(panel.context.contentsModel.last_modified).toISOString();
    const follower = new Follower(kernel);
    const asked = kernel.sendControlMessage(request(kernel), true);
    // Here, and not after `done`: what a cell says next is handled right after this.
    asked.onReply = ({ content }) => {
      const newest = new Map((content.cells ?? []).map((told) => [told.cell_id, told]));
      for (const cell of panel.isDisposed ? [] : panel.content.widgets) {
        const told = newest.get(cell.model.id);
        if (told && isMissed(told, cell, savedAt)) {
          show(told, cell, kernel, follower);
        }
      }
      follower.restIfIdle();
    };
    await asked.done;
  }

  function watch(panel) {
    const begin = (kernel) =>
      kernel && catchUp(panel, kernel).catch((problem) => console.error(IMPLEMENTATION, problem));
    panel.sessionContext.kernelChanged.connect((_, change) => begin(change.newValue));
    begin(panel.sessionContext.session?.kernel);
  }

  let shared;

  const container = {
    init(scope) {
      shared = scope;
    },
    async get() {
      const [notebook] = Object.values(shared["@jupyterlab/notebook"]);
      const { INotebookTracker } = (await notebook.get())();
      const plugin = {
        id: "lambda-kernel-gateway:cells",
        description: "Shows what cells said while their page was not there.",
        autoStart: true,
        requires: [INotebookTracker],
        activate: (_, tracker) => {
          tracker.widgetAdded.connect((_, panel) => watch(panel));
        },
      };
      return () => ({ __esModule: true, default: plugin });
    },
  };

  window._JUPYTERLAB = window._JUPYTERLAB ?? {};
  window._JUPYTERLAB["lambda-kernel-gateway"] = container;
})();
